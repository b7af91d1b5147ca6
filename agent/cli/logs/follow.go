package logs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/cli/client"
	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/agent/cli/pods/podstate"
	"github.com/islet-edge/islet/internal/podspec"
	"github.com/islet-edge/islet/internal/printable"
)

// If the agent stops, islet logs -f waits for agentTimeout, or for Env.AgentPatience if this is set. If the agent
// responds again in this time, the command continues to print the log.
const agentTimeout = 2 * time.Minute

// followLog prints a container's log until the container has ended. If the agent stops, for example for an upgrade, the
// containers keep running. In that case followLog waits for the agent, and continues after the last printed line.
func (c *logsCommand) followLog(ctx context.Context, out io.Writer, pod *v1.Pod, container string) error {
	at := &position{w: out, printTimes: c.timestamps}
	q := c.buildQuery()
	q.Set("timestamps", "true")
	began := time.Now()
	id, err := containerID(pod, container), Copy(ctx, c.Tool, at, pod, container, q)
	for command.IsUnreachable(err) {
		c.lostMessage.Do(func() {
			fmt.Fprintf(c.Stderr, "islet: lost the connection to the agent at %s: waiting for the agent\n", c.Socket)
		})
		previous, gone, waitErr := c.waitForContainer(ctx, pod, container, id)
		switch {
		case waitErr != nil:
			return waitErr
		case gone:
			fmt.Fprintf(c.Stderr, "islet: pod %s/%s is gone\n", printable.Line(pod.Namespace), printable.Line(pod.Name))
			return nil
		case previous:
			q.Set("previous", "true")
			q.Del("follow")
		}
		if at.last != "" {
			q.Del("tailLines")
			q.Set("sinceTime", at.last)
		} else if c.tail == 0 { // everything that was written since then is new
			q.Del("tailLines")
			q.Set("sinceTime", began.UTC().Format(time.RFC3339Nano))
		}
		at.resume()
		err = Copy(ctx, c.Tool, at, pod, container, q)
	}
	return err
}

// waitForContainer waits until an agent responds and lists the container with the given ID. The first result is true if a
// new instance has replaced this container in the meantime. The second result is true if the agent does not have the pod.
func (c *logsCommand) waitForContainer(ctx context.Context, pod *v1.Pod, container, id string) (previous, gone bool, err error) {
	patience := agentTimeout
	if c.AgentPatience > 0 {
		patience = c.AgentPatience
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		pods, err := client.ListPods(ctx, c.Tool)
		if err == nil {
			now := podstate.ByUID(pods, pod)
			if now == nil {
				return false, true, nil
			}
			switch st := statusOf(now, container); {
			case st == nil:
			case st.ContainerID == id:
				return false, false, nil
			case st.LastTerminationState.Terminated != nil && st.LastTerminationState.Terminated.ContainerID == id:
				return true, false, nil
			}
			err = fmt.Errorf("the agent no longer has container %s of pod %s/%s", container, pod.Namespace, pod.Name)
		} else if !command.IsUnreachable(err) {
			return false, false, err
		}
		select {
		case <-ctx.Done():
			return false, false, ctx.Err()
		case <-late.C:
			return false, false, command.ExitWith(command.ExitUnreachable, fmt.Errorf("gave up after %s: %w", patience, err))
		case <-time.After(client.PollInterval):
		}
	}
}

func statusOf(pod *v1.Pod, container string) *v1.ContainerStatus {
	for st := range podspec.Statuses(&pod.Status) {
		if st.Name == container {
			return st
		}
	}
	return nil
}

func containerID(pod *v1.Pod, container string) string {
	st := statusOf(pod, container)
	switch {
	case st == nil:
		return ""
	case st.ContainerID == "" && st.LastTerminationState.Terminated != nil: // the container waits for its restart
		return st.LastTerminationState.Terminated.ContainerID
	}
	return st.ContainerID
}

// A position prints a log and records how much of the log has been printed. Each line of the log begins with a time.
// The position prints the times only if printTimes is set. After a call of resume, it skips the lines that it has
// already printed.
type position struct {
	w          io.Writer
	printTimes bool

	last           string // time of the last line
	lines          int    // number of complete lines with this time that were printed
	chars          int    // number of printed bytes of the unfinished line after these lines
	incompleteTime []byte // beginning of a line whose time is not complete
	inLine         bool

	linesToSkip int  // number of lines to skip
	bytesToSkip int  // number of bytes to skip in the line after these lines
	justResumed bool // the next line must have the same time as the last printed line
}

// errMissed means that the last printed line is no longer in the log.
var errMissed = errors.New("lines of the log are missing: they were removed before they could be printed " +
	"(containerLogMaxSize, containerLogMaxFiles)")

// resume prepares a position for a log that begins at the time of the last printed line.
func (p *position) resume() {
	p.incompleteTime, p.inLine, p.linesToSkip, p.bytesToSkip = nil, false, p.lines, p.chars
	p.justResumed = p.last != ""
}

// Write prints a part of the log. It returns errMissed if the log does not contain the last printed line.
func (p *position) Write(b []byte) (int, error) {
	var out []byte
	for rest := b; len(rest) > 0; {
		if !p.inLine {
			i := bytes.IndexByte(rest, ' ')
			if i < 0 {
				p.incompleteTime = append(p.incompleteTime, rest...)
				break
			}
			stamp := string(append(p.incompleteTime, rest[:i]...))
			if p.justResumed && stamp != p.last {
				return 0, errMissed
			}
			p.justResumed = false
			out = p.beginLine(out, stamp)
			p.incompleteTime, rest = nil, rest[i+1:]
			continue
		}
		part := rest
		if i := bytes.IndexByte(rest, '\n'); i >= 0 {
			part = rest[:i+1]
		}
		rest = rest[len(part):]
		out = p.appendNew(out, part)
	}
	if len(out) == 0 {
		return len(b), nil
	}
	if _, err := p.w.Write(out); err != nil {
		return 0, err
	}
	return len(b), nil
}

// beginLine starts a line with the time stamp.
func (p *position) beginLine(out []byte, stamp string) []byte {
	p.inLine = true
	if stamp != p.last {
		if p.chars > 0 { // the rest of the line is no longer in the log
			out = append(out, '\n')
		}
		p.last, p.lines, p.chars, p.linesToSkip, p.bytesToSkip = stamp, 0, 0, 0, 0
	}
	return out
}

// appendNew appends a part of a line to the given output, except the bytes that were printed before.
func (p *position) appendNew(out, part []byte) []byte {
	ends := part[len(part)-1] == '\n'
	p.inLine = !ends
	if p.linesToSkip > 0 {
		if ends {
			p.linesToSkip--
		}
		return out
	}
	if p.printTimes && p.chars == 0 {
		out = append(append(out, p.last...), ' ')
	}
	known := min(p.bytesToSkip, len(part))
	p.bytesToSkip -= known
	p.chars += len(part) - known
	if ends {
		p.lines++
		p.chars, p.bytesToSkip = 0, 0
	}
	return append(out, part[known:]...)
}
