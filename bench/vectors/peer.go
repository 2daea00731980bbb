package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/weft-search/weft/internal/vector"
)

// buildTime bounds the building of the other program, downloads included.
const buildTime = 10 * time.Minute

// peer is a running program of another engine, as bench/weaviatepeer is: it reads vectors and queries from a file, builds its
// graph and answers requests, a line of JSON each.
type peer struct {
	Engine string  // name and version, as the program says
	Built  float64 // seconds of processor time that building its graph took

	cmd   *exec.Cmd
	in    io.WriteCloser
	lines *bufio.Reader
}

// buildPeer builds the Go module in a folder and returns the program's path. Failing is no fault of the run: the module may need
// a network.
func buildPeer(folder, out string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), buildTime)
	defer cancel()
	bin, err := filepath.Abs(filepath.Join(out, "peer"))
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-mod=readonly", "-o", bin, ".")
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "GOWORK=off")
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		lines := strings.Split(strings.TrimSpace(said.String()), "\n")
		return "", fmt.Errorf("go build in %s: %w: %s", folder, err, lines[len(lines)-1])
	}
	return bin, nil
}

// writeSet writes vectors and queries for the other program: the numbers of dimensions, vectors and queries, 32 bits each, then
// the components as 32-bit floats, all little-endian.
func (d *data) writeSet(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 1<<20)
	var b []byte
	for _, n := range []int{d.dim, len(d.vectors), len(d.queries)} {
		b = binary.LittleEndian.AppendUint32(b, uint32(n))
	}
	_, err = w.Write(b)
	for _, rows := range [][][]float32{d.vectors, d.queries} {
		for _, row := range rows {
			b = b[:0]
			for _, x := range row {
				b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
			}
			if err == nil {
				_, err = w.Write(b)
			}
		}
	}
	if err == nil {
		err = w.Flush()
	}
	return errors.Join(err, f.Close())
}

// startPeer runs a program on a file of writeSet, over 8-bit codes if so wanted, and waits until its graph stands.
func startPeer(bin, file string, codes bool, stderr io.Writer) (*peer, error) {
	args := []string{"-m", strconv.Itoa(vector.DefaultM), "-ef-construction", strconv.Itoa(vector.DefaultEfConstruction)}
	if codes {
		args = append(args, "-rq")
	}
	cmd := exec.Command(bin, append(args, file)...)
	cmd.Stderr = stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &peer{cmd: cmd, in: in, lines: bufio.NewReader(out)}
	if err := p.read(p); err != nil {
		return nil, errors.Join(fmt.Errorf("%s does not answer: %w", bin, err), p.stop())
	}
	return p, nil
}

func (p *peer) read(v any) error {
	line, err := p.lines.ReadBytes('\n')
	if err != nil {
		return err
	}
	return json.Unmarshal(line, v)
}

// ask sends a request for ef candidates and k hits, and reads the answer.
func (p *peer) ask(ef, k int, least float64) (seconds float64, hits [][]uint32, err error) {
	b, err := json.Marshal(struct {
		Ef, K int
		Least float64
	}{ef, k, least})
	if err != nil {
		return 0, nil, err
	}
	if _, err := p.in.Write(append(b, '\n')); err != nil {
		return 0, nil, fmt.Errorf("%s: %w", p.Engine, err)
	}
	var a struct {
		Seconds float64
		Hits    [][]uint32
	}
	if err := p.read(&a); err != nil {
		return 0, nil, fmt.Errorf("answer of %s: %w", p.Engine, err)
	}
	return a.Seconds, a.Hits, nil
}

// stop ends the program by ending its input.
func (p *peer) stop() error {
	return errors.Join(p.in.Close(), p.cmd.Wait())
}

// ways are one for each number of candidates.
func (p *peer) ways(o options, truth [][]uint32) []*way {
	var out []*way
	for _, ef := range o.peerEfs {
		out = append(out, &way{
			engine: p.Engine, records: "f32", name: "graph", ef: ef, share: 1, truth: truth,
			find: func() ([][]uint32, error) {
				_, hits, err := p.ask(ef, o.k, 0)
				if err == nil && len(hits) != o.queries {
					err = fmt.Errorf("%s answers %d of %d queries", p.Engine, len(hits), o.queries)
				}
				return hits, err
			},
			pass: func(least time.Duration) (float64, error) {
				s, _, err := p.ask(ef, o.k, least.Seconds())
				if err == nil && s <= 0 {
					err = fmt.Errorf("%s measures a time of %v s", p.Engine, s)
				}
				return s, err
			},
		})
	}
	return out
}
