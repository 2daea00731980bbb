// Package summapb is the wire of Summa, generated from summa.proto. Package internal/summa translates between it and the engine.
package summapb

//go:generate sh -c "cd ../.. && go tool -modfile=tools/buf/go.mod buf generate --template api/buf.gen.yaml api"
