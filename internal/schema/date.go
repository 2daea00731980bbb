package schema

import "time"

// ParseTime reads an RFC 3339 date-time and returns milliseconds since the epoch, UTC. What is finer than a millisecond is cut off
// (towards the past). Years are 0000 to 9999; leap seconds are not accepted.
func ParseTime[T ~string | ~[]byte](s T) (ms int64, ok bool) {
	if len(s) < len("2006-01-02T15:04:05Z") || s[10] != 'T' && s[10] != 't' || s[13] != ':' || s[16] != ':' {
		return 0, false
	}
	days, ok := parseDay(s)
	if !ok {
		return 0, false
	}
	hour, ok1 := twoDigits(s, 11)
	minute, ok2 := twoDigits(s, 14)
	second, ok3 := twoDigits(s, 17)
	if !ok1 || !ok2 || !ok3 || hour > 23 || minute > 59 || second > 59 {
		return 0, false
	}
	i, milli := 19, 0
	if s[i] == '.' {
		i++
		first := i
		for scale := 100; i < len(s) && isDigit(s[i]); i++ {
			milli += int(s[i]-'0') * scale
			scale /= 10
		}
		if i == first {
			return 0, false
		}
	}
	offset := 0 // minutes east of UTC
	switch {
	case i+1 == len(s) && (s[i] == 'Z' || s[i] == 'z'):
	case i+6 == len(s) && (s[i] == '+' || s[i] == '-') && s[i+3] == ':':
		h, ok1 := twoDigits(s, i+1)
		m, ok2 := twoDigits(s, i+4)
		if !ok1 || !ok2 || h > 23 || m > 59 {
			return 0, false
		}
		offset = h*60 + m
		if s[i] == '-' {
			offset = -offset
		}
	default:
		return 0, false
	}
	seconds := days*86_400 + int64(hour)*3_600 + int64(minute-offset)*60 + int64(second)
	return seconds*1_000 + int64(milli), true
}

// ParseDate is ParseTime, and takes a calendar day (2006-01-02) as its first millisecond in UTC.
func ParseDate[T ~string | ~[]byte](s T) (ms int64, ok bool) {
	if len(s) == len("2006-01-02") {
		days, ok := parseDay(s)
		return days * 86_400_000, ok
	}
	return ParseTime(s)
}

// FormatDate prints milliseconds since the epoch as RFC 3339 in UTC, with a fraction only where there is one.
func FormatDate(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339Nano) }

// parseDay reads the ten bytes YYYY-MM-DD at the start of s, which has at least so many, and returns days since the epoch.
func parseDay[T ~string | ~[]byte](s T) (days int64, ok bool) {
	century, ok1 := twoDigits(s, 0)
	years, ok2 := twoDigits(s, 2)
	month, ok3 := twoDigits(s, 5)
	day, ok4 := twoDigits(s, 8)
	if !ok1 || !ok2 || !ok3 || !ok4 || s[4] != '-' || s[7] != '-' || month < 1 || month > 12 || day < 1 {
		return 0, false
	}
	year := century*100 + years
	leap := year%4 == 0 && (year%100 != 0 || year%400 == 0)
	length := [...]int{31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31}[month-1]
	if leap && month == 2 {
		length++
	}
	if day > length {
		return 0, false
	}
	// Days since 0000-03-01 in the proleptic Gregorian calendar: with the year starting in March a leap day is its last day.
	y, m := int64(year), int64(month-3)
	if month < 3 {
		y, m = y-1, m+12
	}
	yearDays := (153*m + 2) / 5
	return y*365 + floorDiv(y, 4) - floorDiv(y, 100) + floorDiv(y, 400) + yearDays + int64(day-1) - 719_468, true
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

func twoDigits[T ~string | ~[]byte](s T, i int) (int, bool) {
	if !isDigit(s[i]) || !isDigit(s[i+1]) {
		return 0, false
	}
	return int(s[i]-'0')*10 + int(s[i+1]-'0'), true
}
