//go:build armbe || arm64be || m68k || mips || mips64 || mips64p32 || ppc || ppc64 || s390 || s390x || shbe || sparc || sparc64

package sparse

// Mapped integers are read in place, which needs a little-endian machine. This does not compile on any other.
var _ = thisPackageNeedsALittleEndianMachine
