package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/weft-search/weft/internal/client"
)

func TestMain(m *testing.M) {
	as := func(program string) func() {
		return func() {
			ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			os.Exit(Run(ctx, os.Args[1:], IO{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, LookupEnv: os.LookupEnv, Version: "v0.0.0-test", Program: program}))
		}
	}
	testscript.Main(m, map[string]func(){
		"weft": as("weft"), summaServerName: as("/usr/bin/" + summaServerName), summaBrokerName: as("/usr/bin/" + summaBrokerName),
	})
}

// gorace spares every process that a script starts the second that one built with the race detector waits at its end.
const gorace = "atexit_sleep_ms=0"

// TestScripts runs testdata/script. Besides testscript's own commands there are:
//
//	exits N COMMAND ARG…    run a program that has to end with exit code N
//	server start|dev ARG…   start a server on a free port; WEFT_URL names it until the next
//	server stop|kill        end it by SIGTERM (it has to exit with 0) or SIGKILL
//	flip FILE OFFSET        turn a bit of the byte over; a negative offset counts from the end
//	cut FILE BYTES          take bytes off the end
//	one PATTERN NAME        set the variable to the only file that matches; ** stands for any folders
//	ask METHOD PATH JSON    make a request of the server, which has to answer it well
//	put FILE TEXT           write a line to a file
func TestScripts(t *testing.T) {
	var servers sync.Map // of *testscript.TestScript's work folder to *server
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"),
		Setup: func(e *testscript.Env) error {
			e.Setenv("GOROOT", "")
			e.Setenv("GORACE", gorace)
			return nil
		},
		Condition: func(cond string) (bool, error) {
			if cond == "root" {
				return os.Geteuid() == 0, nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits":  exits,
			"server": func(ts *testscript.TestScript, _ bool, args []string) { control(ts, &servers, args) },
			"flip":   flip,
			"cut":    cutFile,
			"one":    one,
			"ask":    ask,
			"put": func(ts *testscript.TestScript, _ bool, args []string) {
				ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(strings.Join(args[1:], " ")+"\n"), 0o644))
			},
		},
	})
}

func exits(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: exits N COMMAND ARG…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// ask makes a request of the server: ask METHOD PATH JSON.
func ask(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: ask METHOD PATH JSON")
	}
	req, err := http.NewRequest(args[0], ts.Getenv("WEFT_URL")+args[1], strings.NewReader(args[2]))
	ts.Check(err)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	ts.Check(err)
	body, err := io.ReadAll(resp.Body)
	ts.Check(errors.Join(err, resp.Body.Close()))
	if (resp.StatusCode >= 400) != neg {
		ts.Fatalf("%s %s: %s %s", args[0], args[1], resp.Status, body)
	}
}

type server struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error
	log  *os.File
}

func control(ts *testscript.TestScript, servers *sync.Map, args []string) {
	key := ts.Getenv("WORK")
	if len(args) == 0 {
		ts.Fatalf("usage: server start|dev|stop|kill")
	}
	switch args[0] {
	case "start", "dev":
		command := "node"
		if args[0] == "dev" {
			command = "dev"
		}
		s := startServer(ts, append([]string{command, "--http", "127.0.0.1:0"}, args[1:]...))
		servers.Store(key, s)
	case "stop", "kill":
		v, ok := servers.LoadAndDelete(key)
		if !ok {
			ts.Fatalf("no server runs")
		}
		s := v.(*server)
		sig := syscall.SIGTERM
		if args[0] == "kill" {
			sig = syscall.SIGKILL
		}
		ts.Check(s.cmd.Process.Signal(sig))
		<-s.done
		if args[0] == "stop" && s.err != nil {
			ts.Fatalf("server ended: %v", s.err)
		}
	default:
		ts.Fatalf("unknown server command %q", args[0])
	}
}

// startServer starts weft from the script's PATH and sets WEFT_URL once it listens and is ready.
func startServer(ts *testscript.TestScript, args []string) *server {
	bin := ""
	for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
		if p := filepath.Join(dir, "weft"); bin == "" {
			if _, err := os.Stat(p); err == nil {
				bin = p
			}
		}
	}
	log, err := os.Create(ts.MkAbs("server.log"))
	ts.Check(err)
	s := &server{cmd: exec.Command(bin, args...), done: make(chan struct{}), log: log}
	s.cmd.Dir = ts.MkAbs(".")
	s.cmd.Env = append(os.Environ(), "TMPDIR="+ts.Getenv("TMPDIR"), "GORACE="+gorace)
	s.cmd.Stderr = log
	stdout, err := s.cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(s.cmd.Start())
	line := make(chan string, 1)
	go func() {
		defer close(s.done)
		sc := bufio.NewScanner(stdout)
		if sc.Scan() {
			line <- sc.Text()
		}
		close(line)
		_, cerr := io.Copy(log, stdout)
		s.err = errors.Join(s.cmd.Wait(), cerr, log.Close())
	}()
	ts.Defer(func() {
		if err := s.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			ts.Logf("kill server: %v", err)
		}
		<-s.done
	})
	addr, ok := strings.CutPrefix(<-line, "listening http ")
	if !ok {
		<-s.done
		text, err := os.ReadFile(ts.MkAbs("server.log"))
		ts.Check(err)
		ts.Fatalf("server did not listen: %v\n%s", s.err, text)
	}
	ts.Setenv("WEFT_URL", "http://"+addr)
	c, err := client.New(addr, client.Options{})
	ts.Check(err)
	defer c.CloseIdle()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	ts.Check(waitReady(ctx, c))
	return s
}

func flip(ts *testscript.TestScript, _ bool, args []string) {
	at, err := strconv.Atoi(args[1])
	ts.Check(err)
	b, err := os.ReadFile(ts.MkAbs(args[0]))
	ts.Check(err)
	if at < 0 {
		at += len(b)
	}
	if at < 0 || at >= len(b) {
		ts.Fatalf("%s has %d bytes", args[0], len(b))
	}
	b[at] ^= 0x10
	ts.Check(os.Chmod(ts.MkAbs(args[0]), 0o644))
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), b, 0o644))
}

func cutFile(ts *testscript.TestScript, _ bool, args []string) {
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	st, err := os.Stat(ts.MkAbs(args[0]))
	ts.Check(err)
	ts.Check(os.Truncate(ts.MkAbs(args[0]), max(st.Size()-int64(n), 0)))
}

func one(ts *testscript.TestScript, _ bool, args []string) {
	root := ts.MkAbs(".")
	var found []string
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil || d.IsDir() {
			return err
		}
		dir, base, deep := strings.Cut(args[0], "**/")
		match := false
		if deep {
			match, err = filepath.Match(base, filepath.Base(rel))
			match = match && strings.HasPrefix(rel, dir)
		} else {
			match, err = filepath.Match(args[0], rel)
		}
		if match {
			found = append(found, rel)
		}
		return err
	})
	ts.Check(err)
	if len(found) != 1 {
		ts.Fatalf("%s matches %d files: %v", args[0], len(found), found)
	}
	ts.Setenv(args[1], found[0])
}
