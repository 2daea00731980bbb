//go:build linux

package faulttest

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// nameVariable is in the environment of a broker and holds its name.
const nameVariable = "FAULTTEST_NAME"

// whose tells which broker has dialled a connection, by the tables of the kernel; "" if it is none.
func whose(remote, local net.Addr) string {
	inode, err := socketOf(remote, local)
	if err != nil || inode == "" {
		return ""
	}
	socket := "socket:[" + inode + "]"
	pids, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return ""
	}
	for _, pid := range pids {
		env, err := os.ReadFile(pid + "/environ")
		if err != nil {
			continue // of another user, or gone
		}
		name := ""
		for v := range bytes.SplitSeq(env, []byte{0}) {
			if rest, ok := bytes.CutPrefix(v, []byte(nameVariable+"=")); ok {
				name = string(rest)
			}
		}
		if name == "" {
			continue
		}
		fds, err := os.ReadDir(pid + "/fd")
		if err != nil {
			continue
		}
		for _, fd := range fds {
			if to, err := os.Readlink(pid + "/fd/" + fd.Name()); err == nil && to == socket {
				return name
			}
		}
	}
	return ""
}

// socketOf is the inode of the socket at this end of a connection over IPv4.
func socketOf(end, other net.Addr) (inode string, err error) {
	f, err := os.Open("/proc/net/tcp")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	from, to := kernelAddr(end), kernelAddr(other)
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		if f := strings.Fields(sc.Text()); len(f) > 9 && f[1] == from && f[2] == to {
			return f[9], nil
		}
	}
	return "", sc.Err()
}

// kernelAddr is an address as /proc/net/tcp writes it.
func kernelAddr(a net.Addr) string {
	t, ok := a.(*net.TCPAddr)
	if !ok || t.IP.To4() == nil {
		return ""
	}
	ip := make([]byte, 4)
	binary.NativeEndian.PutUint32(ip, binary.BigEndian.Uint32(t.IP.To4()))
	return strings.ToUpper(hex.EncodeToString(ip)) + fmt.Sprintf(":%04X", t.Port)
}

// diskSize is that of a disk that can be full.
const diskSize = 96 << 20

// disk is a small file system in memory. It lives in a namespace of its own, which any user may make where the system allows it; a process
// that waits on its standard input keeps it there.
type disk struct {
	dir   string
	cmd   *exec.Cmd
	stdin io.WriteCloser
}

// mount makes a disk at a folder that is not there yet. The error says why the machine has none.
func mount(dir string) (*disk, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	d := &disk{dir: dir, cmd: exec.Command("unshare", "-Urm", "sh", "-c", `mount -t tmpfs -o mode=700,size=`+strconv.Itoa(diskSize)+` weft "$0" && echo mounted && exec cat`, dir)}
	said := &bytes.Buffer{}
	d.cmd.Stderr = said
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if d.stdin, err = d.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "mounted\n" {
		return nil, fmt.Errorf("mount in a namespace: %w: %s", errors.Join(err, d.unmount()), said)
	}
	if err := exec.Command("nsenter", append(d.enter()[1:], "true")...).Run(); err != nil {
		return nil, fmt.Errorf("enter the namespace: %w", errors.Join(err, d.unmount()))
	}
	return d, nil
}

// enter is what a command begins with that is to see the disk.
func (d *disk) enter() []string {
	return []string{"nsenter", "--target", strconv.Itoa(d.cmd.Process.Pid), "--user", "--mount", "--preserve-credentials", "--"}
}

// ballast is a file that takes room, as seen from here.
func (d *disk) ballast() string {
	return filepath.Join("/proc", strconv.Itoa(d.cmd.Process.Pid), "root", d.dir, "ballast")
}

// fill takes all room but so many bytes.
func (d *disk) fill(but int64) (err error) {
	f, err := os.Create(d.ballast())
	if err != nil {
		return fmt.Errorf("fill the disk: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	b := make([]byte, 64<<10)
	for {
		n, err := f.Write(b)
		if err == nil {
			continue
		}
		if !errors.Is(err, syscall.ENOSPC) {
			return fmt.Errorf("fill the disk: %w", err)
		}
		if n == 0 {
			break
		}
		b = b[:max(1, len(b)/2)]
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("fill the disk: %w", err)
	}
	return f.Truncate(max(0, size-but))
}

// empty gives the room back.
func (d *disk) empty() error {
	if err := os.Remove(d.ballast()); err != nil {
		return fmt.Errorf("empty the disk: %w", err)
	}
	return nil
}

// unmount ends the process that keeps the disk, which goes when nobody uses it any more.
func (d *disk) unmount() error {
	return errors.Join(d.stdin.Close(), d.cmd.Wait())
}

func TestADiskCanBeFull(t *testing.T) {
	d, err := mount(filepath.Join(t.TempDir(), "disk"))
	if err != nil {
		t.Skip(err)
	}
	defer func() {
		if err := d.unmount(); err != nil {
			t.Error(err)
		}
	}()
	write := func() error {
		script := append(d.enter(), "dd", "if=/dev/zero", "of="+d.dir+"/file", "bs=64k", "count=1", "status=none")
		return exec.Command(script[0], script[1:]...).Run()
	}
	if err := write(); err != nil {
		t.Fatal(err)
	}
	if err := d.fill(0); err != nil {
		t.Fatal(err)
	}
	script := append(d.enter(), "sh", "-c", `echo more > "$0"`, d.dir+"/other")
	if err := exec.Command(script[0], script[1:]...).Run(); err == nil {
		t.Error("a full disk takes more")
	}
	if err := d.empty(); err != nil {
		t.Fatal(err)
	}
	if err := write(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(d.dir + "/file"); err == nil {
		t.Error("the disk is seen from outside of its namespace")
	}
}

func TestWhoseConnectionItIs(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}()
	// A shell that holds a connection open until its input ends.
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip(err)
	}
	cmd := exec.Command(bash, "-c", "exec 3<>/dev/tcp/127.0.0.1/"+port+"; read x")
	cmd.Env = append(os.Environ(), nameVariable+"=somebody")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if got := whose(c.RemoteAddr(), c.LocalAddr()); got != "somebody" {
		t.Errorf("it is of %q", got)
	}
	if got := whose(c.LocalAddr(), c.RemoteAddr()); got != "" {
		t.Errorf("the other end is of %q", got)
	}
	if err := errors.Join(stdin.Close(), c.Close()); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		if _, ok := errors.AsType[*exec.ExitError](err); !ok { // read met the end of its input
			t.Error(err)
		}
	}
}
