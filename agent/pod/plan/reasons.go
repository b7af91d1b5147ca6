package plan

// Reasons of waiting containers, in the kubelet's words.
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

// Reasons of pods, in the kubelet's words.
const (
	FailedCreatePodSandBox = "FailedCreatePodSandBox"
	FailedMount            = "FailedMount"

	FailedPrepareDynamicResources = "FailedPrepareDynamicResources"

	NetworkNotReady  = "NetworkNotReady"
	DeadlineExceeded = "DeadlineExceeded"
	Preempting       = "Preempting"
	Evicted          = "Evicted"
	Terminated       = "Terminated" // because the machine goes off
)
