package plan

// Reasons of waiting containers, as in a kubelet.
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

// Reasons of pods, as in a kubelet.
const (
	FailedCreatePodSandBox = "FailedCreatePodSandBox"
	FailedMount            = "FailedMount"

	FailedPrepareDynamicResources = "FailedPrepareDynamicResources"

	NetworkNotReady  = "NetworkNotReady"
	DeadlineExceeded = "DeadlineExceeded"
	Preempting       = "Preempting"
	Evicted          = "Evicted"
	Terminated       = "Terminated" // by a shutdown of the machine
)
