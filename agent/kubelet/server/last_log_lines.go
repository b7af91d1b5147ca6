package server

import (
	"bytes"
	"context"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/kubelet/logs"
	"github.com/islet-edge/islet/internal/api"
)

// These are the limits for the last lines of logs in a status.
const (
	maxLogsRead = 20              // number of logs that a status reads
	maxLastLine = 200             // bytes of a line that are shown
	maxLineRead = 64 << 10        // bytes at the end of a log in which its last line is searched
	evidenceFor = 2 * time.Second // duration for all logs
)

func (s *Server) portConflicts(pods []*v1.Pod) map[types.UID][]string {
	if s.PortConflicts == nil {
		return nil
	}
	return s.PortConflicts(pods)
}

// addEvidence limits the number of troubles in a status, and adds the last log line of their containers. Lines that cannot be read
// within the time evidenceFor are left out.
func (s *Server) addEvidence(ctx context.Context, pods []*v1.Pod, st *api.Status) {
	st.MoreTroubles = max(0, len(st.Troubles)-maxTroubles)
	st.Troubles = st.Troubles[:len(st.Troubles)-st.MoreTroubles]
	ctx, cancel := context.WithTimeout(ctx, evidenceFor)
	defer cancel()
	read := 0
	for i := range st.Troubles {
		t := &st.Troubles[i]
		if t.ExitCode == nil || read == maxLogsRead || ctx.Err() != nil {
			continue
		}
		for _, p := range pods {
			if p.Namespace == t.Namespace && p.Name == t.Name {
				t.LastLine = s.lastLine(ctx, p, t.Container, *t.ExitCode)
				read++
				break
			}
		}
	}
}

// lastLine returns the last line of the log of a pod's container, shortened to maxLastLine bytes. If the container's name is empty,
// lastLine uses the first container that has ended with the given exit code. It returns "" if there is no log. If the line is longer
// than maxLineRead, it returns a later part of the line.
func (s *Server) lastLine(ctx context.Context, pod *v1.Pod, container string, code int32) string {
	if container == "" {
		container = endedWith(pod, code)
	}
	id, attempt, err := loggedContainer(pod, container, false)
	if err != nil {
		return ""
	}
	path, err := s.logPath(ctx, pod, container, id, attempt)
	if err != nil {
		return ""
	}
	out := beginning{left: maxLastLine}
	ended := func(context.Context) bool { return true }
	if logs.Read(ctx, path, logs.Options{Tail: 1, Within: maxLineRead}, ended, &out) != nil {
		return ""
	}
	line := strings.ToValidUTF8(strings.TrimRight(out.String(), "\r\n"), "")
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
	bytes.Buffer
	left int
	cut  bool
}

// Write implements io.Writer.
func (b *beginning) Write(p []byte) (int, error) {
	n := min(len(p), b.left)
	b.cut = b.cut || len(bytes.TrimRight(p[n:], "\r\n")) > 0
	b.left -= n
	b.Buffer.Write(p[:n])
	return len(p), nil
}
