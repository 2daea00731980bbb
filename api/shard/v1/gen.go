// Package shardv1 is the wire form of the shard protocol over gRPC, generated from shard.proto. Package internal/leaf/rpc converts
// between it and the types of package internal/leaf.
package shardv1

//go:generate sh -c "cd ../../.. && go tool -modfile=tools/buf/go.mod buf generate --template api/buf.gen.yaml api"
