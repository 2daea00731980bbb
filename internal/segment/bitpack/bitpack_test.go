package bitpack

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"testing"
)

// naivePack follows the description of the layout bit by bit.
func naivePack(v *[128]uint32, width uint8) []byte {
	w := int(width)
	out := make([]byte, Size(width))
	for i, x := range v {
		for b := range w {
			if x>>b&1 == 0 {
				continue
			}
			at := i/8*w + b // bit within the stream of the lane
			byteAt := (at/32*8 + i%8) * 4
			if w%2 == 1 && at/32 == w/2 {
				byteAt = w/2*32 + i%8*2
			}
			out[byteAt+at%32/8] |= 1 << (at % 8)
		}
	}
	return out
}

func mask(width uint8) uint32 { return uint32(uint64(1)<<width - 1) }

// blocks are the inputs for a width: random ones and extremes, all within the width.
func blocks(width uint8) [][128]uint32 {
	rnd := rand.New(rand.NewPCG(7, uint64(width)))
	m := mask(width)
	var out [][128]uint32
	add := func(f func(i int) uint32) {
		var v [128]uint32
		for i := range v {
			v[i] = f(i) & m
		}
		out = append(out, v)
	}
	add(func(int) uint32 { return 0 })
	add(func(int) uint32 { return m })
	add(func(i int) uint32 { return uint32(i) })
	add(func(i int) uint32 { return m * uint32(i%2) })
	add(func(i int) uint32 { return m * uint32(i/8%2) })
	add(func(int) uint32 { return 0xaaaaaaaa })
	for at := 0; at < 128; at += 9 {
		add(func(i int) uint32 {
			if i == at {
				return m
			}
			return 0
		})
	}
	for range 20 {
		add(func(int) uint32 { return rnd.Uint32() })
		add(func(int) uint32 { return rnd.Uint32() >> rnd.IntN(32) })
	}
	return out
}

type path struct {
	name   string
	unpack func(*[128]uint32, []byte, uint8)
	add    func(*[128]uint32, []byte, uint8, uint32)
	deltas func(*[128]uint32, []byte, uint8, uint32)
}

// paths are the implementations that this machine and build have.
func paths() []path {
	out := []path{
		{"public", Unpack, UnpackAdd, UnpackDeltas},
		{"scalar", unpackScalar, unpackAddScalar, unpackDeltasScalar},
	}
	if useAVX2 {
		out = append(out, path{"avx2", unpackAVX2, unpackAddAVX2, unpackDeltasAVX2})
	}
	return out
}

var terms = []uint32{0, 1, 77, 1 << 31, 1<<32 - 1}

func checkBlock(t *testing.T, v *[128]uint32, packed []byte, width uint8) {
	t.Helper()
	for _, p := range paths() {
		var got, want [128]uint32
		for i := range got {
			got[i] = 0xdeadbeef
		}
		if p.unpack(&got, packed, width); got != *v {
			t.Fatalf("width %d: %s unpack\n got %v\nwant %v", width, p.name, got, *v)
		}
		for _, a := range terms {
			sum := a
			for i, x := range v {
				want[i] = x + a
			}
			if p.add(&got, packed, width, a); got != want {
				t.Fatalf("width %d: %s add %d\n got %v\nwant %v", width, p.name, a, got, want)
			}
			for i, x := range v {
				sum += x
				want[i] = sum
			}
			if p.deltas(&got, packed, width, a); got != want {
				t.Fatalf("width %d: %s deltas from %d\n got %v\nwant %v", width, p.name, a, got, want)
			}
		}
	}
}

func TestRoundTrip(t *testing.T) {
	for width := uint8(0); width <= MaxWidth; width++ {
		for _, v := range blocks(width) {
			packed := Pack([]byte("before"), &v, width)
			if !bytes.HasPrefix(packed, []byte("before")) {
				t.Fatalf("width %d: pack changed what stood before", width)
			}
			packed = packed[len("before"):]
			if want := naivePack(&v, width); !bytes.Equal(packed, want) {
				t.Fatalf("width %d: packed\n% x\nwant\n% x", width, packed, want)
			}
			checkBlock(t, &v, packed, width)
		}
	}
}

// Every byte string of the right length is a block: unpacking and packing gives it back, by all paths.
func TestEveryInput(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for width := uint8(0); width <= MaxWidth; width++ {
		for range 20 {
			src := make([]byte, Size(width))
			for i := range src {
				src[i] = byte(rnd.Uint32())
			}
			var v [128]uint32
			unpackScalar(&v, src, width)
			if got := naivePack(&v, width); !bytes.Equal(got, src) {
				t.Fatalf("width %d: % x\nwant % x", width, got, src)
			}
			checkBlock(t, &v, src, width)
		}
	}
}

func TestPackDropsHighBits(t *testing.T) {
	for width := uint8(0); width < MaxWidth; width++ {
		v := blocks(32)[7+int(width)]
		cut := v
		for i := range cut {
			cut[i] &= mask(width)
		}
		if got, want := Pack(nil, &v, width), Pack(nil, &cut, width); !bytes.Equal(got, want) {
			t.Fatalf("width %d: high bits reach the output", width)
		}
	}
}

func TestMaxBits(t *testing.T) {
	for width := uint8(0); width <= MaxWidth; width++ {
		for _, v := range blocks(width) {
			want := 0
			for _, x := range v {
				want = max(want, bits.Len32(x))
			}
			if got := MaxBits(&v); int(got) != want {
				t.Fatalf("got %d, want %d for %v", got, want, v)
			}
		}
	}
	for i := range Len {
		v := [128]uint32{}
		v[i] = 1 << 20
		if got := MaxBits(&v); got != 21 {
			t.Fatalf("value %d is not seen: %d", i, got)
		}
	}
}

func TestRefuses(t *testing.T) {
	panics := func(what string, f func()) {
		t.Helper()
		defer func() {
			if recover() == nil {
				t.Errorf("%s: no panic", what)
			}
		}()
		f()
	}
	var v [128]uint32
	for _, p := range paths() {
		for width := uint8(1); width <= MaxWidth; width++ {
			short := make([]byte, Size(width)-1)
			panics(fmt.Sprintf("%s, short input of width %d", p.name, width), func() { p.unpack(&v, short, width) })
			panics(fmt.Sprintf("%s, short input of width %d", p.name, width), func() { p.add(&v, short, width, 1) })
			panics(fmt.Sprintf("%s, short input of width %d", p.name, width), func() { p.deltas(&v, short, width, 1) })
		}
		long := make([]byte, 16*256)
		for _, width := range []uint8{33, 64, 255} {
			panics(p.name+", wide", func() { p.unpack(&v, long, width) })
			panics(p.name+", wide", func() { p.add(&v, long, width, 1) })
			panics(p.name+", wide", func() { p.deltas(&v, long, width, 1) })
		}
	}
	panics("packing 33 bits", func() { Pack(nil, &v, 33) })
}

func TestAllocates(t *testing.T) {
	dst := make([]byte, 0, 16*32)
	src := make([]byte, 16*32)
	n := testing.AllocsPerRun(100, func() {
		var v [128]uint32 // stays on the stack
		for width := uint8(0); width <= MaxWidth; width++ {
			Unpack(&v, src, width)
			UnpackAdd(&v, src, width, 1)
			UnpackDeltas(&v, src, width, 1)
			dst = Pack(dst[:0], &v, MaxBits(&v))
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzPaths(f *testing.F) {
	f.Add(uint8(7), uint32(3), []byte("some bytes"))
	f.Add(uint8(32), uint32(1<<31), bytes.Repeat([]byte{0xff}, 512))
	f.Fuzz(func(t *testing.T, width uint8, a uint32, src []byte) {
		width %= MaxWidth + 1
		if len(src) < Size(width) {
			src = append(src, make([]byte, Size(width)-len(src))...)
		}
		src = src[:Size(width):Size(width)]
		var want, got, other [128]uint32
		unpackScalar(&want, src, width)
		if packed := Pack(nil, &want, width); !bytes.Equal(packed, src) {
			t.Fatalf("width %d: packed % x, want % x", width, packed, src)
		}
		if w := MaxBits(&want); w > width || !bytes.Equal(Pack(nil, &want, w), naivePack(&want, w)) {
			t.Fatalf("width %d: least width is given as %d", width, w)
		}
		if Unpack(&got, src, width); got != want {
			t.Fatalf("width %d: unpack differs", width)
		}
		unpackAddScalar(&other, src, width, a)
		if UnpackAdd(&got, src, width, a); got != other {
			t.Fatalf("width %d: add differs", width)
		}
		unpackDeltasScalar(&other, src, width, a)
		if UnpackDeltas(&got, src, width, a); got != other {
			t.Fatalf("width %d: deltas differ", width)
		}
	})
}

// BenchmarkUnpack and its like report ns for one integer; a run over all paths and operations says what an
// implementation is worth.
func BenchmarkUnpack(b *testing.B) {
	src := make([]byte, 16*32)
	for i := 0; i < len(src); i += 4 {
		binary.LittleEndian.PutUint32(src[i:], rand.Uint32())
	}
	var v [128]uint32
	each := func(name string, f func(width uint8)) {
		for _, width := range []uint8{1, 4, 5, 7, 8, 11, 16, 17, 32} {
			b.Run(fmt.Sprintf("%s/width=%d", name, width), func(b *testing.B) {
				for b.Loop() {
					f(width)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/Len, "ns/int")
			})
		}
	}
	for _, p := range paths()[1:] {
		each("unpack/"+p.name, func(w uint8) { p.unpack(&v, src, w) })
		each("add/"+p.name, func(w uint8) { p.add(&v, src, w, 1) })
		each("deltas/"+p.name, func(w uint8) { p.deltas(&v, src, w, 1) })
	}
}

func BenchmarkPack(b *testing.B) {
	v := blocks(32)[30]
	dst := make([]byte, 0, 16*32)
	for _, width := range []uint8{1, 4, 7, 8, 11, 16, 17, 32} {
		b.Run(fmt.Sprintf("width=%d", width), func(b *testing.B) {
			for b.Loop() {
				dst = Pack(dst[:0], &v, width)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/Len, "ns/int")
		})
	}
}

func BenchmarkMaxBits(b *testing.B) {
	v := blocks(20)[30]
	n := 0
	for b.Loop() {
		n += int(MaxBits(&v))
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/Len, "ns/int")
}
