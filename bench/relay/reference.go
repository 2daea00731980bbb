package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// startReference starts a program with the command line of summa-broker before a node.
func startReference(program, node string) (*server, error) {
	s := &server{cmd: exec.Command(program, append([]string{"--addr", "127.0.0.1:0", "--metrics-addr", "127.0.0.1:0"}, wholeFlags(node)...)...)}
	said, err := s.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(said)
	for lines.Scan() {
		if _, addr, ok := strings.Cut(lines.Text(), "Summa broker listening on "); ok {
			s.addr = strings.TrimSpace(addr)
			go io.Copy(io.Discard, said) // to the end of the program
			return s, nil
		}
	}
	return nil, errors.Join(fmt.Errorf("%s does not say where it listens", program), lines.Err(), s.end())
}

// end ends a program that answers no questions.
func (s *server) end() error {
	err := s.cmd.Process.Signal(syscall.SIGTERM)
	late := time.AfterFunc(10*time.Second, func() { _ = s.cmd.Process.Kill() }) // it drains
	defer late.Stop()
	return errors.Join(err, s.cmd.Wait())
}

// tick is the unit of times in /proc.
const tick = 10 * time.Millisecond

// cpuOf is the processor time of another process, in steps of 10 ms.
func cpuOf(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name, which is in brackets, may hold anything. User and system time are the 12th and 13th field behind it.
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("understand %q", b)
	}
	user, err := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * tick, errors.Join(err, err2)
}
