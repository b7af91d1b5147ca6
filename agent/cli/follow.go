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

// A followed log goes on when the agent comes back, within agentPatience unless
// Env has another; it is asked again every askAgain.
const (
	agentPatience = 2 * time.Minute
	askAgain      = 500 * time.Millisecond
)

// follow prints a container's log until the container has ended. An agent that
// stops, as for an upgrade, leaves its containers running: the log goes on after
// the last line when there is one again.
func (c *logsCommand) follow(ctx context.Context, out io.Writer, pod *v1.Pod, container string) error {
	at := &position{w: out, stamps: c.timestamps}
	q := c.query()
	q.Set("timestamps", "true")
	began := time.Now()
	id, err := containerID(pod, container), c.copy(ctx, at, pod, container, q)
	for isLost(err) {
		c.lost.Do(func() { fmt.Fprintf(c.Stderr, "islet: lost the agent at %s: waiting for it to come back\n", c.socket) })
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
		} else if c.tail == 0 { // what was written meanwhile is new
			q.Del("tailLines")
			q.Set("sinceTime", began.UTC().Format(time.RFC3339Nano))
		}
		at.resume()
		err = c.copy(ctx, at, pod, container, q)
	}
	return err
}

// isLost says whether the agent went away.
func isLost(err error) bool {
	var exit exitError
	return errors.As(err, &exit) && exit.code == ExitUnreachable
}

// await waits until an agent knows the container with that ID again: as the
// present one or, with previous, as the one before. gone: it knows no such pod.
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
			err = fmt.Errorf("the agent does not know container %s of pod %s/%s any more", container, pod.Namespace, pod.Name)
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
	case st.ContainerID == "" && st.LastTerminationState.Terminated != nil: // waiting for its next attempt
		return st.LastTerminationState.Terminated.ContainerID
	}
	return st.ContainerID
}

// A position is how far a log was printed. It takes the log with times and
// prints it with or without; what it is given again after resume, it leaves out.
type position struct {
	w      io.Writer
	stamps bool

	last   string // time of the newest line
	lines  int    // that were printed of this time, whole
	chars  int    // of the unfinished line after them
	head   []byte // the beginning of a line, while its time is not complete
	inLine bool

	again     int  // lines to leave out
	againTail int  // characters to leave out of the line after them
	resumed   bool // the next line must be one of the newest's time
}

// errMissed says that the newest line that was printed is no longer part of the log.
var errMissed = errors.New("lines of the log are missing: they were removed before they could be printed (containerLogMaxSize, containerLogMaxFiles)")

// resume says that the log is given again from the time of the newest line.
func (p *position) resume() {
	p.head, p.inLine, p.again, p.againTail = nil, false, p.lines, p.chars
	p.resumed = p.last != ""
}

// Write takes a part of the log. errMissed means that it does not go on where it ended.
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
		out = p.more(out, part)
	}
	if len(out) == 0 {
		return len(b), nil
	}
	if _, err := p.w.Write(out); err != nil {
		return 0, err
	}
	return len(b), nil
}

// begin begins a line of that time.
func (p *position) begin(out []byte, stamp string) []byte {
	p.inLine = true
	if stamp != p.last {
		if p.chars > 0 { // its rest is not there any more
			out = append(out, '\n')
		}
		p.last, p.lines, p.chars, p.again, p.againTail = stamp, 0, 0, 0, 0
	}
	return out
}

// more takes a part of a line, to its end at most.
func (p *position) more(out, part []byte) []byte {
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
