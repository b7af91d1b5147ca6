package logs

import (
	"bytes"
	"context"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/agent/kubelet/logs"
)

// These are the limits of LastLine.
const (
	maxLastLine = 200      // bytes of a line that are returned
	maxLineRead = 64 << 10 // bytes at the end of a log in which its last line is searched
)

// LastLine returns the last line of the log of a pod's container, shortened to maxLastLine bytes. If the container's name is empty,
// LastLine uses the first container that has ended with the given exit code. It returns "" if there is no log. If the line is longer
// than maxLineRead, it returns a later part of the line.
func (l *Logs) LastLine(ctx context.Context, pod *v1.Pod, container string, code int32) string {
	if container == "" {
		container = endedWith(pod, code)
	}
	id, attempt, err := loggedContainer(pod, container, false)
	if err != nil {
		return ""
	}
	path, err := l.findPath(ctx, pod, container, id, attempt)
	if err != nil {
		return ""
	}
	out := beginning{left: maxLastLine}
	ended := func(context.Context) bool { return true }
	if logs.Read(ctx, path, logs.Options{Tail: 1, Within: maxLineRead}, ended, &out) != nil {
		return ""
	}
	line := strings.ToValidUTF8(strings.TrimRight(string(out.text), "\r\n"), "")
	if out.cut {
		line += "..."
	}
	return line
}

// endedWith returns the name of the first container of a pod that has ended with an exit code.
func endedWith(pod *v1.Pod, code int32) string {
	for _, list := range [][]v1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range list {
			if e := list[i].State.Terminated; e != nil && e.ExitCode == code {
				return list[i].Name
			}
		}
	}
	return ""
}

// A beginning keeps the first bytes that are written to it.
type beginning struct {
	text []byte
	left int
	cut  bool
}

// Write implements io.Writer.
func (b *beginning) Write(p []byte) (int, error) {
	n := min(len(p), b.left)
	b.cut = b.cut || len(bytes.TrimRight(p[n:], "\r\n")) > 0
	b.left -= n
	b.text = append(b.text, p[:n]...)
	return len(p), nil
}
