package support

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"

	"github.com/islet-edge/islet/agent/cli/client"
	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/internal/regular"
)

const (
	maxLogTail = 1 << 20              // bytes of the agent's log in a bundle
	logFile    = "/var/log/islet.log" // of OpenRC
	journal    = "journalctl"         // of systemd
	logLines   = "--lines=5000"       // number of lines that are requested
)

// readAgentLog returns the end of the agent's log, from the file that the agent writes to, from the file of OpenRC or from systemd's
// journal.
func readAgentLog(ctx context.Context, t *command.Tool) ([]byte, error) {
	if text, err := readAgentFile(ctx, t, 2); err == nil {
		return text, nil
	}
	text, err := readLogFile(logFile)
	if err == nil {
		return text, nil
	}
	program, missing := exec.LookPath(journal)
	if missing != nil {
		return nil, fmt.Errorf("the agent's standard error is not a file, and there is neither %s nor %s", logFile, journal)
	}
	var out tailBuffer
	c := exec.CommandContext(ctx, program, "--unit=islet", "--unit=kubelet", logLines, "--no-pager", "--output=short-iso", "--quiet")
	c.Stdout = &out
	if err := c.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w", journal, err)
	}
	if out.b.Len() == 0 {
		return nil, errors.New("the journal has no lines of the units islet and kubelet")
	}
	return out.wholeLines(), nil
}

// readAgentFile returns the end of the regular file that the agent has open as the given file descriptor. It fails if the agent does
// not run.
func readAgentFile(ctx context.Context, t *command.Tool, fd int) ([]byte, error) {
	conn, err := client.Dial(ctx, t)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	pid, err := peerPID(conn.(*net.UnixConn))
	if err != nil {
		return nil, fmt.Errorf("find the agent's process: %w", err)
	}
	return readLogFile(fmt.Sprintf("/proc/%d/fd/%d", pid, fd))
}

// readLogFile returns the whole lines in the last maxLogTail bytes of a file.
func readLogFile(path string) ([]byte, error) {
	f, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	at := max(0, info.Size()-maxLogTail)
	buf := make([]byte, info.Size()-at)
	n, err := f.ReadAt(buf, at)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if at > 0 {
		return withoutPart(buf[:n]), nil
	}
	return buf[:n], nil
}

// withoutPart returns a text without its first line, whose beginning is missing. The missing part may contain the name of a secret.
// The secret in the rest of the line could then not be recognized.
func withoutPart(text []byte) []byte {
	_, rest, _ := bytes.Cut(text, []byte{'\n'})
	return rest
}

// A tailBuffer keeps at least the last maxLogTail bytes that are written to it.
type tailBuffer struct {
	b   bytes.Buffer // not embedded: io.Copy would call its method ReadFrom instead of Write
	cut bool         // the beginning is missing
}

// Write implements io.Writer.
func (b *tailBuffer) Write(p []byte) (int, error) {
	b.b.Write(p)
	if cut := b.b.Len() - 2*maxLogTail; cut > 0 {
		b.b.Next(b.b.Len() - maxLogTail)
		b.cut = true
	}
	return len(p), nil
}

// wholeLines returns the kept lines.
func (b *tailBuffer) wholeLines() []byte {
	if b.cut {
		return withoutPart(b.b.Bytes())
	}
	return b.b.Bytes()
}
