package api

import (
	"math"
	"strconv"
	"time"
)

// AppendScore appends a float32 so that it reads back to the same bits. The score must be finite; see Finite.
func AppendScore(b []byte, score float32) []byte {
	return strconv.AppendFloat(b, float64(score), 'g', -1, 32)
}

// Finite tells whether a score can be written as a JSON number.
func Finite(score float32) bool {
	return !math.IsNaN(float64(score)) && !math.IsInf(float64(score), 0)
}

// Micros is a duration in whole microseconds, the unit that times in replies are counted in.
func Micros(d time.Duration) int64 { return int64(d / time.Microsecond) }

// AppendMillis appends microseconds as milliseconds with up to three decimals, exactly. Less than none is none: beyond the year 2157
// the times of Go go by the calendar alone, and a clock that is set back makes what has passed since negative.
func AppendMillis(b []byte, micros int64) []byte {
	micros = max(0, micros)
	b = strconv.AppendInt(b, micros/1000, 10)
	frac := micros % 1000
	if frac == 0 {
		return b
	}
	b = append(b, '.', byte('0'+frac/100), byte('0'+frac/10%10), byte('0'+frac%10))
	for b[len(b)-1] == '0' {
		b = b[:len(b)-1]
	}
	return b
}

// AppendStrings appends an array of strings.
func AppendStrings(b []byte, list []string) []byte {
	b = append(b, '[')
	for i, s := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = AppendString(b, s)
	}
	return append(b, ']')
}
