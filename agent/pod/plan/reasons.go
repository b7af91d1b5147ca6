package plan

// Why a container waits, in the kubelet's words.
const (
	PodInitializing            = "PodInitializing"
	ContainerCreating          = "ContainerCreating"
	CrashLoopBackOff           = "CrashLoopBackOff"
	InvalidImageName           = "InvalidImageName"
	ErrImageNeverPull          = "ErrImageNeverPull"
	ErrImagePull               = "ErrImagePull"
	ImagePullBackOff           = "ImagePullBackOff"
	ImageInspectError          = "ImageInspectError"
	CreateContainerConfigError = "CreateContainerConfigError"
	CreateContainerError       = "CreateContainerError"
	RunContainerError          = "RunContainerError"
	PostStartHookError         = "PostStartHookError"
	RestartingAllContainers    = "RestartingAllContainers"
)

// Why a pod does not get as far as its containers.
const (
	FailedCreatePodSandBox = "FailedCreatePodSandBox"
	FailedMount            = "FailedMount"

	FailedPrepareDynamicResources = "FailedPrepareDynamicResources"

	NetworkNotReady  = "NetworkNotReady"
	DeadlineExceeded = "DeadlineExceeded"
	Preempting       = "Preempting"
	Evicted          = "Evicted"
	Terminated       = "Terminated" // the machine goes off
)
