package guard

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// reportTimeout is the time for which the guard waits for the child's report after the child has ended. The limit is
// needed because descendants of the child may keep the pipe open.
const reportTimeout = time.Second

// A child is the agent on trial. It runs as a child process of the guard.
type child struct {
	cmd     *exec.Cmd
	verdict chan string   // the verdict; closed without a verdict when the child has ended and its reports have been read
	ended   chan struct{} // closed when the child has ended and ProcessState is set

	mu         sync.Mutex
	waitReport string   // the last report of ReportWait
	pods       []string // the last report of ReportBlamed
}

// waitCondition returns the condition that the child last reported with ReportWait.
func (c *child) waitCondition() (why string, outage bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if why, is := strings.CutPrefix(c.waitReport, "outage: "); is {
		return why, true
	}
	return strings.TrimPrefix(c.waitReport, "waits: "), false
}

// blamedCauses returns the pods and pressures that the child last reported with ReportBlamed.
func (c *child) blamedCauses() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pods
}

// maxLine is the maximum length of a line in the child's reports.
const maxLine = 64 << 10

// readReports reads the child's reports until it reads a verdict, or until the child has ended and the pipe is closed. A
// child that only closes the pipe may run until the deadline.
func (c *child) readReports(in io.ReadCloser) {
	defer close(c.verdict)
	defer in.Close()
	for from := bufio.NewReaderSize(in, maxLine); ; {
		text, more, err := from.ReadLine()
		line := strings.TrimSpace(string(text))
		for more && err == nil { // skip the rest of a line that is too long
			_, more, err = from.ReadLine()
		}
		switch {
		case line == "good" || strings.HasPrefix(line, "bad: "):
			c.verdict <- line
			return
		case strings.HasPrefix(line+" ", blameText):
			c.mu.Lock()
			c.pods = strings.FieldsFunc(strings.TrimPrefix(line+" ", blameText), func(r rune) bool { return r == ',' || r == ' ' })
			c.pods = c.pods[:min(len(c.pods), maxBlamed)]
			c.mu.Unlock()
		case line != "":
			c.mu.Lock()
			c.waitReport = line
			c.mu.Unlock()
		}
		if err != nil {
			<-c.ended
			return
		}
	}
}

func startChild(program string) (*child, error) {
	in, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer out.Close()
	text, err := json.Marshal(Role{Kind: Trial})
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	cmd := exec.Command(program)
	cmd.Args = os.Args
	cmd.Env = append(withoutVariable(os.Environ(), notifyVariable), roleVariable+"="+string(text))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{out}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, in.Close())
	}
	c := &child{cmd: cmd, verdict: make(chan string, 1), ended: make(chan struct{})}
	go func() {
		defer close(c.ended)
		cmd.Wait() // ProcessState contains the result
		time.AfterFunc(reportTimeout, func() { in.Close() })
	}()
	go c.readReports(in)
	return c, nil
}

// endChild sends SIGTERM to the child, and kills it if it has not ended within the timeout.
func (c *child) endChild(within time.Duration) {
	c.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.ended:
		return
	case <-time.After(within):
	}
	c.cmd.Process.Kill()
	<-c.ended
}
