package schema

import (
	"errors"
	"math"
	"math/big"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestIntegers(t *testing.T) {
	for _, c := range []struct {
		in   string
		want int64
		err  error
	}{
		{"0", 0, nil},
		{"-0", 0, nil},
		{"1.0", 1, nil},
		{"1e3", 1000, nil},
		{"12.50e1", 125, nil},
		{"-9223372036854775808", math.MinInt64, nil},
		{"9223372036854775807", math.MaxInt64, nil},
		{"9223372036854775808", 0, ErrRange},
		{"-9223372036854775809", 0, ErrRange},
		{"9223372036854775807.000", math.MaxInt64, nil},
		{"922337203685477580.7e1", math.MaxInt64, nil},
		{"1.5", 0, ErrFraction},
		{"1e-1", 0, ErrFraction},
		{"0e99999999999999999999", 0, nil},
		{"1e99999999999999999999", 0, ErrRange},
		{"1e-99999999999999999999", 0, ErrFraction},
		{"0.000", 0, nil},
		{"100000000000000000000e-2", 1000000000000000000, nil},
		{"", 0, ErrNotNumber},
		{"-", 0, ErrNotNumber},
		{"1e", 0, ErrNotNumber},
		{"1x", 0, ErrNotNumber},
		{".", 0, ErrNotNumber},
		{"1e+", 0, ErrNotNumber},
		{"+1", 0, ErrNotNumber},
	} {
		got, err := ParseI64(c.in)
		if !errors.Is(err, c.err) || got != c.want {
			t.Errorf("%q: %d, %v", c.in, got, err)
		}
	}
	if v, err := ParseU64("18446744073709551615"); err != nil || v != math.MaxUint64 {
		t.Errorf("%d, %v", v, err)
	}
	if v, err := ParseU64("18446744073709551615e0"); err != nil || v != math.MaxUint64 {
		t.Errorf("%d, %v", v, err)
	}
	for _, bad := range []string{"18446744073709551616", "18446744073709551616e0", "-1"} {
		if _, err := ParseU64(bad); !errors.Is(err, ErrRange) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// TestIntegersAgainstRationals compares with exact arithmetic.
func TestIntegersAgainstRationals(t *testing.T) {
	number := rapid.StringMatching(`-?(0|[1-9][0-9]{0,21})(\.[0-9]{1,6})?(e[+-]?[0-9]{1,2})?`)
	rapid.Check(t, func(t *rapid.T) {
		s := number.Draw(t, "number")
		r, ok := new(big.Rat).SetString(s)
		if !ok {
			t.Fatal(s)
		}
		got, err := ParseI64([]byte(s))
		switch {
		case !r.IsInt():
			if !errors.Is(err, ErrFraction) {
				t.Fatalf("%s: %v", s, err)
			}
		case !r.Num().IsInt64():
			if !errors.Is(err, ErrRange) {
				t.Fatalf("%s: %v", s, err)
			}
		case err != nil || got != r.Num().Int64():
			t.Fatalf("%s: %d, %v", s, got, err)
		}
		f, err := ParseF64(s)
		want, werr := strconv.ParseFloat(s, 64)
		if werr == nil && (err != nil || math.Float64bits(f) != math.Float64bits(want)) {
			t.Fatalf("%s: %v, %v", s, f, err)
		}
	})
}

func TestFloats(t *testing.T) {
	for in, want := range map[string]float64{"0.1": 0.1, "1e-400": 0, "-0": math.Copysign(0, -1), "123456789012345": 123456789012345, "9007199254740993": 9007199254740992} {
		if v, err := ParseF64(in); err != nil || v != want {
			t.Errorf("%s: %v, %v", in, v, err)
		}
	}
	for in, want := range map[string]error{"1e400": ErrRange, "-1e400": ErrRange, "inf": ErrNotNumber, "NaN": ErrNotNumber, "0x1p3": ErrNotNumber, "1_0": ErrNotNumber, "": ErrNotNumber, "1e": ErrNotNumber} {
		if _, err := ParseF64(in); !errors.Is(err, want) {
			t.Errorf("%s: %v", in, err)
		}
	}
}

func TestDates(t *testing.T) {
	for in, want := range map[string]int64{
		"1970-01-01T00:00:00Z": 0, "1969-12-31T23:59:59.9999Z": -1, "2024-02-29T12:30:00.5+02:00": 1709202600500,
		"0000-01-01T00:00:00Z": -62167219200000, "9999-12-31t23:59:59z": 253402300799000, "2000-03-01T00:00:00-00:30": 951870600000,
	} {
		if ms, ok := ParseTime(in); !ok || ms != want {
			t.Errorf("%s: %d, %v", in, ms, ok)
		}
	}
	for _, bad := range []string{
		"2024-02-30T00:00:00Z", "2023-02-29T00:00:00Z", "2024-13-01T00:00:00Z", "2024-00-01T00:00:00Z", "2024-01-00T00:00:00Z", "2024-01-01T24:00:00Z",
		"2024-01-01T00:60:00Z", "2024-01-01T00:00:60Z", "2024-01-01T00:00:00", "2024-01-01T00:00:00.Z", "2024-01-01T00:00:00+1:00", "2024-01-01 00:00:00Z",
		"2024-01-01T00:00:00+24:00", "2024-01-01T00:00:00Zx", "20240101T000000Z00000", "2024-01-01", "",
	} {
		if _, ok := ParseTime(bad); ok {
			t.Errorf("%q is accepted", bad)
		}
	}
	if ms, ok := ParseDate("2024-02-29"); !ok || FormatDate(ms) != "2024-02-29T00:00:00Z" {
		t.Errorf("%d %v", ms, ok)
	}
	rapid.Check(t, func(t *rapid.T) {
		ms := rapid.Int64Range(-62167219200000, 253402300799999).Draw(t, "ms")
		zone := rapid.IntRange(-14*60, 14*60).Draw(t, "zone")
		text := time.UnixMilli(ms).In(time.FixedZone("", zone*60)).Format("2006-01-02T15:04:05.000Z07:00")
		if len(text) != len("2006-01-02T15:04:05.000Z") && len(text) != len("2006-01-02T15:04:05.000+00:00") {
			t.Skip("year outside of 0000 to 9999")
		}
		if got, ok := ParseTime([]byte(text)); !ok || got != ms {
			t.Fatalf("%s: %d, %v, want %d", text, got, ok, ms)
		}
	})
}

func TestEncodeText(t *testing.T) {
	for _, c := range []struct {
		t    Type
		in   string
		want uint64
	}{{U64, "5", 5}, {I64, "-5", EncodeI64(-5)}, {F64, "0.5", EncodeF64(0.5)}, {Date, "1970-01-02", EncodeI64(86_400_000)}, {Date, "-1", EncodeI64(-1)}} {
		if got, err := EncodeText(c.t, c.in); err != nil || got != c.want {
			t.Errorf("%s %s: %d, %v", c.t, c.in, got, err)
		}
	}
	if _, err := EncodeText(Text, "5"); err == nil {
		t.Error("text has a number")
	}
	if _, err := EncodeText(Date, "yesterday"); !errors.Is(err, ErrNotNumber) {
		t.Errorf("%v", err)
	}
}
