//go:build !linux

package cli

import "os"

// isTerminal tells whether w is a screen that a person looks at. A character device is one, save for the null device.
func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0 && f.Name() != os.DevNull
}
