//go:build !amd64 || noasm

package bitpack

// useAVX2 is a constant here, so that the compiler drops the calls.
const useAVX2 = false

func unpackAVX2(*[128]uint32, []byte, uint8)               {}
func unpackAddAVX2(*[128]uint32, []byte, uint8, uint32)    {}
func unpackDeltasAVX2(*[128]uint32, []byte, uint8, uint32) {}
