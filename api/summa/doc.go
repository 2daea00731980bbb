// Package summapb is the wire of Summa, generated from summa.proto by `go generate ./api/...` like every contract below api. Package
// internal/summa translates between it and the engine.
package summapb
