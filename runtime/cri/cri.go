package cri

import (
	"context"
	"io"

	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Runtime is the CRI's RuntimeService without its streaming calls. Serve implements the streamed
// lists with the unary list calls, and GetContainerEvents with Subscriber.
type Runtime interface {
	Version(context.Context, *api.VersionRequest) (*api.VersionResponse, error)
	Status(context.Context, *api.StatusRequest) (*api.StatusResponse, error)
	RuntimeConfig(context.Context, *api.RuntimeConfigRequest) (*api.RuntimeConfigResponse, error)
	UpdateRuntimeConfig(context.Context, *api.UpdateRuntimeConfigRequest) (*api.UpdateRuntimeConfigResponse, error)

	RunPodSandbox(context.Context, *api.RunPodSandboxRequest) (*api.RunPodSandboxResponse, error)
	StopPodSandbox(context.Context, *api.StopPodSandboxRequest) (*api.StopPodSandboxResponse, error)
	RemovePodSandbox(context.Context, *api.RemovePodSandboxRequest) (*api.RemovePodSandboxResponse, error)
	PodSandboxStatus(context.Context, *api.PodSandboxStatusRequest) (*api.PodSandboxStatusResponse, error)
	ListPodSandbox(context.Context, *api.ListPodSandboxRequest) (*api.ListPodSandboxResponse, error)
	UpdatePodSandboxResources(context.Context, *api.UpdatePodSandboxResourcesRequest) (*api.UpdatePodSandboxResourcesResponse, error)

	CreateContainer(context.Context, *api.CreateContainerRequest) (*api.CreateContainerResponse, error)
	StartContainer(context.Context, *api.StartContainerRequest) (*api.StartContainerResponse, error)
	StopContainer(context.Context, *api.StopContainerRequest) (*api.StopContainerResponse, error)
	RemoveContainer(context.Context, *api.RemoveContainerRequest) (*api.RemoveContainerResponse, error)
	ListContainers(context.Context, *api.ListContainersRequest) (*api.ListContainersResponse, error)
	ContainerStatus(context.Context, *api.ContainerStatusRequest) (*api.ContainerStatusResponse, error)
	UpdateContainerResources(context.Context, *api.UpdateContainerResourcesRequest) (*api.UpdateContainerResourcesResponse, error)
	ReopenContainerLog(context.Context, *api.ReopenContainerLogRequest) (*api.ReopenContainerLogResponse, error)
	CheckpointContainer(context.Context, *api.CheckpointContainerRequest) (*api.CheckpointContainerResponse, error)

	ExecSync(context.Context, *api.ExecSyncRequest) (*api.ExecSyncResponse, error)
	Exec(context.Context, *api.ExecRequest) (*api.ExecResponse, error)
	Attach(context.Context, *api.AttachRequest) (*api.AttachResponse, error)
	PortForward(context.Context, *api.PortForwardRequest) (*api.PortForwardResponse, error)

	ContainerStats(context.Context, *api.ContainerStatsRequest) (*api.ContainerStatsResponse, error)
	ListContainerStats(context.Context, *api.ListContainerStatsRequest) (*api.ListContainerStatsResponse, error)
	PodSandboxStats(context.Context, *api.PodSandboxStatsRequest) (*api.PodSandboxStatsResponse, error)
	ListPodSandboxStats(context.Context, *api.ListPodSandboxStatsRequest) (*api.ListPodSandboxStatsResponse, error)
	ListMetricDescriptors(context.Context, *api.ListMetricDescriptorsRequest) (*api.ListMetricDescriptorsResponse, error)
	ListPodSandboxMetrics(context.Context, *api.ListPodSandboxMetricsRequest) (*api.ListPodSandboxMetricsResponse, error)
}

// Images is the CRI's ImageService.
type Images interface {
	ListImages(context.Context, *api.ListImagesRequest) (*api.ListImagesResponse, error)
	ImageStatus(context.Context, *api.ImageStatusRequest) (*api.ImageStatusResponse, error)
	PullImage(context.Context, *api.PullImageRequest) (*api.PullImageResponse, error)
	RemoveImage(context.Context, *api.RemoveImageRequest) (*api.RemoveImageResponse, error)
	ImageFsInfo(context.Context, *api.ImageFsInfoRequest) (*api.ImageFsInfoResponse, error)
}

// Events is an optional interface of a Runtime. ContainerEvents passes each change of a container or sandbox to the handler. When ctx ends,
// it returns the error of ctx. After any other error, events may be lost, and the caller must list all objects and call ContainerEvents
// again. The handler must not block.
type Events interface {
	ContainerEvents(ctx context.Context, handle func(*api.ContainerEventResponse)) error
}

// Subscriber is an optional interface of a Runtime. Subscribe returns at once. From then on, the handler receives each change of a
// container or sandbox. The returned function ends the subscription: after it has returned, the handler is not called any more. The handler
// must not block.
type Subscriber interface {
	Subscribe(handle func(*api.ContainerEventResponse)) (end func())
}

// PodWatcher is an optional interface of a Runtime in this process. WatchPods is like Subscribe, but passes only the UID of the
// pod, because a complete event costs more than most changes. A call has sent the events about its changes when it returns, except that of
// the end of a container, which may come shortly afterwards. The status of a container does not change after its end.
type PodWatcher interface {
	WatchPods(handle func(uid string)) (end func())
}

// TerminalSize is the size of a terminal in characters.
type TerminalSize struct{ Width, Height uint16 }

// ExecOptions describes a process to run in a container, and its streams. If Stdin is nil, the
// input is empty. The input of a command ends if Stdin returns io.EOF before ctx has ended. After any other error, or after the end of ctx,
// the command is killed, because it must not mistake the loss of its client for the end of its input. If Stdout or Stderr is nil, that
// output is discarded.
type ExecOptions struct {
	Command []string // if empty, attach to the container's first process
	Stdin   io.Reader
	Stdout  io.WriteCloser
	Stderr  io.WriteCloser // must be nil if TTY is true
	TTY     bool
	Resize  <-chan TerminalSize

	// Collect is set if the caller needs the complete output, such as a probe. The call then ends
	// soon after the command, even if child processes keep the output open. It also ends soon after
	// ctx if the command cannot be killed. The command may then still write to Stdout and Stderr, so
	// the caller must not use them after an error that is not an ExitError.
	Collect bool
}

// An ExitError is returned by Streamer.Stream if the exit code of the process is not zero.
type ExitError struct{ Code int32 }

// Streamer is an optional interface of a Runtime. It implements exec, attach and port-forward
// without the URLs of the CRI.
type Streamer interface {
	// Stream runs a command in a container, or attaches to the container. It returns when the
	// process has ended and its output is delivered, or soon after ctx has ended.
	Stream(ctx context.Context, containerID string, o ExecOptions) error
	// Forward connects stream to a TCP port on the loopback interface of the sandbox.
	Forward(ctx context.Context, sandboxID string, port int32, stream io.ReadWriteCloser) error
}

// ImportProgress is the progress of an import or a pull.
type ImportProgress struct {
	Ref     string // reference of the image, or name of the archive file
	Status  string // one of: downloading, unpacking, exists, done
	Current int64  // bytes
	Total   int64  // bytes; 0 if unknown
}

// Archives is an optional interface of Images. It is not part of the CRI.
type Archives interface {
	// ImportArchive imports an OCI layout or docker-archive tarball, which may be compressed with
	// gzip or zstd. It returns the references of the imported images. Importing an archive again is
	// not an error.
	ImportArchive(ctx context.Context, r io.Reader, name string, progress func(ImportProgress)) ([]string, error)
	// PullWithProgress is like PullImage, but reports the progress.
	PullWithProgress(ctx context.Context, req *api.PullImageRequest, progress func(ImportProgress)) (*api.PullImageResponse, error)
}

// Layers is an optional interface of Images. It is not part of the CRI.
type Layers interface {
	// ListLayers returns the chain IDs of all unpacked layers, sorted.
	ListLayers(ctx context.Context) ([]string, error)
}
