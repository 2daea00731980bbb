package cli

import (
	"os"

	"golang.org/x/sys/unix"
)

// isTerminal tells whether w is a screen that a person looks at.
func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
