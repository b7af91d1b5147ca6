package observe

import (
	"bytes"
	"io"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/internal/untrusted"
)

// The limits of a termination message, as in a kubelet.
const (
	maxMessage      = 4096
	maxMessageLog   = 2048
	maxMessageLines = 80
)

// maxLogTail is the number of bytes that are read at the end of a log. They contain maxMessageLog bytes of output and the
// beginnings of maxMessageLines lines, and before them a whole line: runtimes split longer lines of output at maxLogLine.
const (
	maxLogLine = 16 << 10
	maxLogTail = 4*maxMessageLog + maxLogLine
)

// terminationMessage returns the termination message of a container that has ended. The message is the
// content of the container's termination log. If this log is empty, the container failed and its policy is
// FallbackToLogsOnError, the message is the end of the container's output.
// https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/
func terminationMessage(root string, st *api.ContainerStatus) string {
	if log := terminationLog(root, st); log != "" {
		if b := readTail(filepath.Dir(log), filepath.Base(log), maxMessage); len(b) > 0 {
			return strings.ToValidUTF8(string(b), "")
		}
	}
	policy := v1.TerminationMessagePolicy(st.GetAnnotations()[keys.MessagePolicy])
	if policy == v1.TerminationMessageFallbackToLogsOnError && st.GetExitCode() != 0 {
		root, name := untrusted.SplitLog(st.GetLogPath())
		return lastLines(readTail(root, name, maxLogTail))
	}
	return ""
}

// terminationLog returns the path of a container's termination log, or "" if the container has none. The path is always in the
// node's own directory, pods/UID/containers/NAME below root, which contains nothing else. A volume of the pod may have the same
// path in the container, but the termination log covers this volume. The server of a volume may not answer, so the observer,
// which serves all pods, never opens a file of a volume.
func terminationLog(root string, st *api.ContainerStatus) (log string) {
	own := "/pods/" + st.GetLabels()[keys.PodUID] + "/containers/" + st.GetMetadata().GetName() + "/"
	for _, m := range st.GetMounts() {
		_, name, found := strings.Cut(m.HostPath, own) // a runtime that resolves symlinks may report another root
		if found && !strings.Contains(name, "/") {
			log = root + own + name
		}
	}
	return log
}

// readTail returns at most the last n bytes of a file. Its name is relative to the directory root. readTail returns nil if the
// file is not a regular file, or cannot be read. The file is not trusted: a container writes it, and a pod that mounts the host's
// log directory can replace the file, or a directory above it, by a symlink or a device.
func readTail(root, name string, n int64) []byte {
	f, err := untrusted.Open(root, name)
	if err != nil {
		return nil
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil
	}
	b, err := io.ReadAll(io.NewSectionReader(f, max(fi.Size()-n, 0), n))
	if err != nil {
		return nil
	}
	return b
}

// lastLines returns the text of the last CRI log lines ("time stream tag text"). The log has at most maxLogTail bytes. If it has
// maxLogTail bytes, the beginning of its first line may be missing.
func lastLines(log []byte) string {
	lines := bytes.Split(bytes.TrimSuffix(log, []byte("\n")), []byte("\n"))
	var out []byte
	if len(log) == maxLogTail {
		l := lines[0]
		lines = lines[1:]
		// If the message needs this line, the runtime does not split lines, and the end of the line is only text. A block of
		// zeros is not a line: the file has lost its data by a power cut.
		if len(lines) < maxMessageLines && len(l) > maxLogLine && bytes.IndexByte(l, 0) < 0 {
			out = append(slices.Clone(l[len(l)-maxMessageLog:]), '\n')
		}
	}
	for _, l := range lines[max(len(lines)-maxMessageLines, 0):] {
		if f := bytes.SplitN(l, []byte(" "), 4); len(f) == 4 {
			out = append(out, f[3]...)
			if string(f[2]) != "P" {
				out = append(out, '\n')
			}
		}
	}
	return strings.ToValidUTF8(string(out[max(len(out)-maxMessageLog, 0):]), "")
}
