package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/podspec"
)

// If the agent stops, a followed log waits for agentTimeout, or for Env.AgentPatience if that is set. It resumes if
// the agent responds again in this time. It polls the agent at the interval pollInterval.
const (
	agentPatience = 2 * time.Minute
	askAgain      = 500 * time.Millisecond
)

// follow prints a container's log until the container has ended. If the agent stops, for example for an upgrade, the
// containers keep running. In that case it waits for the agent, and resumes after the last printed line.
func (c *logsCommand) follow(ctx context.Context, out io.Writer, pod *v1.Pod, container string) error {
	at := &position{w: out, stamps: c.timestamps}
	q := c.query()
	q.Set("timestamps", "true")
	began := time.Now()
	id, err := containerID(pod, container), c.copy(ctx, at, pod, container, q)
	for isLost(err) {
		c.lost.Do(func() {
			fmt.Fprintf(c.Stderr, "islet: lost the connection to the agent at %s: waiting for the agent\n", c.socket)
		})
		previous, gone, waitErr := c.await(ctx, pod, container, id)
		switch {
		case waitErr != nil:
			return waitErr
		case gone:
			fmt.Fprintf(c.Stderr, "islet: pod %s/%s is gone\n", pod.Namespace, pod.Name)
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
		err = c.copy(ctx, at, pod, container, q)
	}
	return err
}

// isLost reports whether the agent has disconnected.
func isLost(err error) bool {
	var exit exitError
	return errors.As(err, &exit) && exit.code == ExitUnreachable
}

// await waits until an agent lists the container with the given ID. The first result is true if that container has
// ended and was restarted since. The second result is true if the agent does not have the pod.
func (c *logsCommand) await(ctx context.Context, pod *v1.Pod, container, id string) (previous, gone bool, err error) {
	patience := agentPatience
	if c.AgentPatience > 0 {
		patience = c.AgentPatience
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		pods, err := c.list(ctx)
		if err == nil {
			now := byUID(pods, pod)
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
		} else if !isLost(err) {
			return false, false, err
		}
		select {
		case <-ctx.Done():
			return false, false, ctx.Err()
		case <-late.C:
			return false, false, exitError{ExitUnreachable, fmt.Errorf("gave up after %s: %w", patience, err)}
		case <-time.After(askAgain):
		}
	}
}

func byUID(pods []v1.Pod, pod *v1.Pod) *v1.Pod {
	for i := range pods {
		if pods[i].UID == pod.UID {
			return &pods[i]
		}
	}
	return nil
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
	case st.ContainerID == "" && st.LastTerminationState.Terminated != nil: // waiting for its restart
		return st.LastTerminationState.Terminated.ContainerID
	}
	return st.ContainerID
}

// A position prints a log and records how much of the log has been printed. Each line of the log begins with a time,
// which is printed only if printTimes is set. After resume, the position skips the lines that it has printed.
type position struct {
	w      io.Writer
	stamps bool

	last   string // time of the last line
	lines  int    // number of complete lines with this time that were printed
	chars  int    // number of printed bytes of the unfinished line after them
	head   []byte // beginning of a line whose time is not complete
	inLine bool

	again     int  // number of lines to skip
	againTail int  // number of bytes to skip in the line after them
	resumed   bool // the next line must have the time of the last line
}

// errMissed means that the last printed line is no longer in the log.
var errMissed = errors.New("lines of the log are missing: they were removed before they could be printed " +
	"(containerLogMaxSize, containerLogMaxFiles)")

// resume prepares a position for a log that begins at the time of the last printed line.
func (p *position) resume() {
	p.head, p.inLine, p.again, p.againTail = nil, false, p.lines, p.chars
	p.resumed = p.last != ""
}

// Write prints a part of the log. It returns errMissed if the log does not contain the last printed line.
func (p *position) Write(b []byte) (int, error) {
	var out []byte
	for rest := b; len(rest) > 0; {
		if !p.inLine {
			i := bytes.IndexByte(rest, ' ')
			if i < 0 {
				p.head = append(p.head, rest...)
				break
			}
			stamp := string(append(p.head, rest[:i]...))
			if p.resumed && stamp != p.last {
				return 0, errMissed
			}
			p.resumed = false
			out = p.begin(out, stamp)
			p.head, rest = nil, rest[i+1:]
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

// begin starts a line with the time stamp.
func (p *position) begin(out []byte, stamp string) []byte {
	p.inLine = true
	if stamp != p.last {
		if p.chars > 0 { // the rest of the line is no longer in the log
			out = append(out, '\n')
		}
		p.last, p.lines, p.chars, p.again, p.againTail = stamp, 0, 0, 0, 0
	}
	return out
}

// appendNew appends the part of a line to out, except the bytes that were printed before.
func (p *position) appendNew(out, part []byte) []byte {
	ends := part[len(part)-1] == '\n'
	p.inLine = !ends
	if p.again > 0 {
		if ends {
			p.again--
		}
		return out
	}
	if p.stamps && p.chars == 0 {
		out = append(append(out, p.last...), ' ')
	}
	known := min(p.againTail, len(part))
	p.againTail -= known
	p.chars += len(part) - known
	if ends {
		p.lines++
		p.chars, p.againTail = 0, 0
	}
	return append(out, part[known:]...)
}
