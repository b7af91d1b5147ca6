package servertest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	v1 "k8s.io/api/core/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/keys"
	"github.com/islet-edge/islet/runtime/cri"
)

// A Runtime is a fake runtime. Its containers have no processes, and it runs a few commands itself. Methods that it does not implement
// panic.
type Runtime struct {
	cri.Runtime
	cri.Images

	mu         sync.Mutex
	containers map[string]*api.ContainerStatus
	cpu        uint64
	images     []*api.Image

	// Stopped is called with the ID of each stopped container. It may be nil.
	Stopped func(id string)
	// Streams waits for all running calls of Stream.
	Streams sync.WaitGroup
	// Saved is the number of commands save that got the end of their input.
	Saved atomic.Int32
	// Size receives the terminal sizes that the command sh gets.
	Size chan cri.TerminalSize
}

func newRuntime() *Runtime {
	return &Runtime{containers: map[string]*api.ContainerStatus{}, Size: make(chan cri.TerminalSize, 8),
		images: []*api.Image{{Id: "sha256:0123456789abcdef", RepoTags: []string{"localhost/web:1"}, Size: 5 << 20}}}
}

func (r *Runtime) run(pod *v1.Pod, id, name, log string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.containers[id] = &api.ContainerStatus{Id: id, State: api.ContainerState_CONTAINER_RUNNING, LogPath: log,
		Labels: map[string]string{keys.PodName: pod.Name, keys.PodNamespace: pod.Namespace,
			keys.PodUID: string(pod.UID), keys.ContainerName: name}}
}

// Exit ends a container.
func (r *Runtime) Exit(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.containers[id].State = api.ContainerState_CONTAINER_EXITED
}

// HasContainer reports whether the runtime has a container.
func (r *Runtime) HasContainer(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.containers[id] != nil
}

// StopContainer implements cri.Runtime.
func (r *Runtime) StopContainer(_ context.Context, q *api.StopContainerRequest) (*api.StopContainerResponse, error) {
	r.Exit(q.ContainerId)
	if r.Stopped != nil {
		r.Stopped(q.ContainerId)
	}
	return &api.StopContainerResponse{}, nil
}

// RemoveContainer implements cri.Runtime.
func (r *Runtime) RemoveContainer(_ context.Context, q *api.RemoveContainerRequest) (*api.RemoveContainerResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.containers, q.ContainerId)
	return &api.RemoveContainerResponse{}, nil
}

// ContainerStatus implements cri.Runtime.
func (r *Runtime) ContainerStatus(_ context.Context, q *api.ContainerStatusRequest) (*api.ContainerStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[q.ContainerId]
	if c == nil {
		return nil, fmt.Errorf("container %s: %w", q.ContainerId, errdefs.ErrNotFound)
	}
	return &api.ContainerStatusResponse{Status: &api.ContainerStatus{State: c.State, LogPath: c.LogPath}}, nil
}

// ListContainers implements cri.Runtime.
func (r *Runtime) ListContainers(_ context.Context, q *api.ListContainersRequest) (*api.ListContainersResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := &api.ListContainersResponse{}
	for _, c := range r.containers {
		if st := q.GetFilter().GetState(); st != nil && c.State != st.State || !hasLabels(c.Labels, q.GetFilter().GetLabelSelector()) {
			continue
		}
		out.Containers = append(out.Containers, &api.Container{Id: c.Id, Labels: c.Labels, State: c.State})
	}
	return out, nil
}

func hasLabels(has, want map[string]string) bool {
	for k, v := range want {
		if has[k] != v {
			return false
		}
	}
	return true
}

// ListPodSandbox implements cri.Runtime.
func (r *Runtime) ListPodSandbox(context.Context, *api.ListPodSandboxRequest) (*api.ListPodSandboxResponse, error) {
	return &api.ListPodSandboxResponse{Items: []*api.PodSandbox{{Id: "sandbox"}}}, nil
}

// ListContainerStats implements cri.Runtime. Between two calls, time advances by half a second, and each container uses a
// tenth of a core.
func (r *Runtime) ListContainerStats(context.Context, *api.ListContainerStatsRequest) (*api.ListContainerStatsResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cpu++
	out := &api.ListContainerStatsResponse{}
	for _, c := range r.containers {
		out.Stats = append(out.Stats, &api.ContainerStats{Attributes: &api.ContainerAttributes{Id: c.Id, Labels: c.Labels},
			Cpu: &api.CpuUsage{
				Timestamp:            int64(r.cpu) * int64(time.Second/2),
				UsageCoreNanoSeconds: &api.UInt64Value{Value: r.cpu * 50e6},
			},
			Memory: &api.MemoryUsage{WorkingSetBytes: &api.UInt64Value{Value: 3 << 20}}})
	}
	return out, nil
}

// Status implements cri.Runtime.
func (r *Runtime) Status(context.Context, *api.StatusRequest) (*api.StatusResponse, error) {
	return &api.StatusResponse{Status: &api.RuntimeStatus{Conditions: []*api.RuntimeCondition{
		{Type: "RuntimeReady", Status: true}, {Type: "NetworkReady", Status: true}}},
		Info: map[string]string{"ociRuntime": "crun 1.8.1", "cgroupVersion": "2", "snapshotter": "overlayfs", "shimPods": "16"}}, nil
}

// Version implements cri.Runtime.
func (r *Runtime) Version(context.Context, *api.VersionRequest) (*api.VersionResponse, error) {
	return &api.VersionResponse{RuntimeName: "containerd", RuntimeVersion: "2.3.4"}, nil
}

// ExecSync implements cri.Runtime.
func (r *Runtime) ExecSync(_ context.Context, q *api.ExecSyncRequest) (*api.ExecSyncResponse, error) {
	return &api.ExecSyncResponse{Stdout: []byte(strings.Join(q.Cmd, ","))}, nil
}

// CheckpointContainer implements cri.Runtime. The archive contains the ID of the container and the timeout. A container with the
// name bare cannot be checkpointed.
func (r *Runtime) CheckpointContainer(ctx context.Context, q *api.CheckpointContainerRequest) (*api.CheckpointContainerResponse, error) {
	if strings.HasSuffix(q.ContainerId, "-bare") {
		return nil, fmt.Errorf("checkpoint container %s: this host has no CRIU: %w", q.ContainerId, errdefs.ErrNotImplemented)
	}
	if _, ok := ctx.Deadline(); !ok {
		return nil, errors.New("the call has no timeout")
	}
	return &api.CheckpointContainerResponse{}, os.WriteFile(q.Location, fmt.Append(nil, q.ContainerId, " ", q.Timeout), 0o600)
}

// Stream implements cri.Streamer for these commands:
//
//	echo WORDS       writes the words, and the container's ID to the standard error
//	cat              copies the standard input to the output
//	save             copies the standard input to the output, and counts Saved at the end of the input
//	exit CODE        ends with an exit code
//	give BYTES CODE  writes bytes and ends with an exit code
//	flood            writes until the session ends
//	hang             waits for the end of the session
//	begin            writes "begun" and then waits for the end of the session
//	sh               answers lines and sends the sizes of the terminal to Size
//	tar, test        run on the host; a container with the name bare has neither
//
// An attached container behaves like cat, or like give if there is no standard input. A container with the name flood
// behaves like flood.
func (r *Runtime) Stream(ctx context.Context, id string, o cri.ExecOptions) error {
	r.Streams.Add(1)
	defer r.Streams.Done()
	switch {
	case len(o.Command) > 0:
	case strings.HasSuffix(id, "-flood"):
		o.Command = []string{"flood"}
	case o.Stdin == nil:
		o.Command = []string{"give", fmt.Sprint(OutputBytes), "7"}
	default:
		o.Command = []string{"cat"}
	}
	switch o.Command[0] {
	case "echo":
		fmt.Fprintln(o.Stdout, strings.Join(o.Command[1:], " "))
		if o.Stderr != nil {
			fmt.Fprintln(o.Stderr, "from", id)
		}
	case "cat", "save":
		return r.copyInput(o)
	case "exit":
		code := int32(0)
		fmt.Sscan(o.Command[1], &code)
		return cri.ExitError{Code: code}
	case "flood":
		for ctx.Err() == nil {
			if _, err := o.Stdout.Write(make([]byte, 64<<10)); err != nil {
				return err
			}
		}
		return ctx.Err()
	case "tar", "test":
		return runOnHost(ctx, id, o)
	case "give":
		var n, code int
		fmt.Sscan(o.Command[1], &n)
		fmt.Sscan(o.Command[2], &code)
		if _, err := o.Stdout.Write(Bytes(n)); err != nil {
			return err
		}
		if code == 0 {
			return nil
		}
		return cri.ExitError{Code: int32(code)}
	case "begin":
		fmt.Fprintln(o.Stdout, "begun")
		<-ctx.Done()
		return ctx.Err()
	case "hang":
		<-ctx.Done()
		return ctx.Err()
	case "sh":
		return r.shell(ctx, o)
	default:
		return errors.New("executable file not found: " + o.Command[0])
	}
	return nil
}

// copyInput runs the commands cat and save.
func (r *Runtime) copyInput(o cri.ExecOptions) error {
	_, err := io.Copy(o.Stdout, o.Stdin)
	if err == nil && o.Command[0] == "save" {
		r.Saved.Add(1)
	}
	return err
}

// runOnHost runs a command on the host.
func runOnHost(ctx context.Context, id string, o cri.ExecOptions) error {
	if strings.HasSuffix(id, "-bare") {
		return errors.New("executable file not found: " + o.Command[0])
	}
	cmd := exec.CommandContext(ctx, o.Command[0], o.Command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = o.Stdin, o.Stdout, o.Stderr
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return cri.ExitError{Code: int32(exit.ExitCode())}
	}
	return err
}

// shell answers each line of the standard input, and sends each terminal size to Size. The line "exit" ends it.
func (r *Runtime) shell(ctx context.Context, o cri.ExecOptions) error {
	lines := make(chan string)
	go func() {
		for in := bufio.NewScanner(o.Stdin); in.Scan(); {
			lines <- in.Text()
		}
		close(lines)
	}()
	for {
		select {
		case line, ok := <-lines:
			if !ok || line == "exit" {
				return cri.ExitError{Code: 7}
			}
			fmt.Fprintf(o.Stdout, "you said %s\r\n", line)
		case size := <-o.Resize:
			r.Size <- size
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// OutputBytes is the number of bytes that the port PortGives sends. A container sends the same number of bytes to a client that
// attaches without standard input.
const OutputBytes = 512 << 10

// Bytes returns the first bytes of the output of the command give. Their number must be a
// multiple of 16.
func Bytes(n int) []byte { return bytes.Repeat([]byte("0123456789abcdef"), n/16) }

// The ports of a sandbox that do not echo.
const (
	PortGives  = 97 // sends OutputBytes bytes
	PortFloods = 98 // sends bytes until the connection ends
)

// Forward implements cri.Streamer.
func (r *Runtime) Forward(_ context.Context, _ string, port int32, s io.ReadWriteCloser) (err error) {
	defer s.Close()
	switch port {
	case PortGives:
		_, err = s.Write(Bytes(OutputBytes))
	case PortFloods:
		for err == nil {
			_, err = s.Write(Bytes(64 << 10))
		}
	default:
		_, err = io.Copy(s, s)
	}
	return err
}

// ListImages implements cri.Images.
func (r *Runtime) ListImages(context.Context, *api.ListImagesRequest) (*api.ListImagesResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return &api.ListImagesResponse{Images: r.images}, nil
}

// ImageStatus implements cri.Images.
func (r *Runtime) ImageStatus(_ context.Context, q *api.ImageStatusRequest) (*api.ImageStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, i := range r.images {
		if i.RepoTags[0] == q.Image.Image {
			return &api.ImageStatusResponse{Image: i}, nil
		}
	}
	return &api.ImageStatusResponse{}, nil
}

// RemoveImage implements cri.Images.
func (r *Runtime) RemoveImage(context.Context, *api.RemoveImageRequest) (*api.RemoveImageResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.images = nil
	return &api.RemoveImageResponse{}, nil
}

// ImportArchive implements cri.Archives. The content of the archive becomes the name of the image.
func (r *Runtime) ImportArchive(_ context.Context, in io.Reader, name string, tell func(cri.ImportProgress)) ([]string, error) {
	data, err := io.ReadAll(in)
	if err != nil {
		return nil, err
	}
	if len(data) == 0 {
		return nil, errors.New(name + " is not an image archive")
	}
	tell(cri.ImportProgress{Ref: name, Status: "unpacking", Current: int64(len(data)), Total: int64(len(data))})
	return []string{strings.TrimSpace(string(data[:min(64, len(data))]))}, nil
}

// PullWithProgress implements cri.Archives.
func (r *Runtime) PullWithProgress(_ context.Context, q *api.PullImageRequest,
	tell func(cri.ImportProgress)) (*api.PullImageResponse, error) {
	tell(cri.ImportProgress{Ref: q.Image.Image, Status: "downloading", Current: 1, Total: 2})
	return nil, fmt.Errorf("pull %s: no such host", q.Image.Image)
}
