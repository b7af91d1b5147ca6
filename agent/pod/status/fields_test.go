package status

import (
	"reflect"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/fieldtest"
)

const statusFile = "../../../docs/pod-status.md"

// These constants say whether the node supports a status field.
const (
	fills  = "filled"       // the status of some life in TestLives contains the field
	fillsW = "filled where" // features that are not in the lives fill the field
	others = "not the node's"
	none   = "empty"
)

// This list contains the types whose fields are documented, in the order of the page. Each field has a row.
var statusTypes = []fieldtest.Table{
	{Type: reflect.TypeFor[v1.PodStatus](), Title: "status", Rows: []fieldtest.Row{
		{"observedGeneration", fills, ""},
		{"phase", fills, "not terminal while a container runs"},
		{"conditions", fills, "PodReadyToStartContainers, Initialized, Ready, ContainersReady, PodScheduled; DisruptionTarget when the node ends the pod; PodResizePending, PodResizeInProgress; AllContainersRestarting of a pod with such rules; islet.dev/DevicesPlugged of a pod with [devices](devices.md) of the node; conditions of other writers are kept"},
		{"message", fills, "also why a deletion is stuck"},
		{"reason", fills, ""},
		{"nominatedNodeName", others, "the scheduler's"},
		{"hostIP", fills, ""},
		{"hostIPs", fills, "one address of each family"},
		{"podIP", fills, ""},
		{"podIPs", fills, "a pod keeps them after its end"},
		{"startTime", fills, ""},
		{"initContainerStatuses", fills, ""},
		{"containerStatuses", fills, ""},
		{"qosClass", fills, ""},
		{"ephemeralContainerStatuses", fills, ""},
		{"resize", none, "conditions have replaced it"},
		{"resourceClaimStatuses", others, "a controller's"},
		{"extendedResourceClaimStatus", others, "the scheduler's"},
		{"allocatedResources", fillsW, "the pod has requests; the value is what the node has allocated"},
		{"resources", fills, "the resources of the pod as a whole"},
		{"nodeAllocatableResourceClaimStatuses", others, "the scheduler's"},
		{"volumeHealth", none, "alpha in Kubernetes 1.37; the feature gate CSIVolumeHealth is rejected"},
	}},
	{Type: reflect.TypeFor[v1.PodCondition](), Title: "conditions[]", Rows: []fieldtest.Row{
		{"type", fills, ""},
		{"observedGeneration", fills, ""},
		{"status", fills, ""},
		{"lastProbeTime", fillsW, "the pod is being resized"},
		{"lastTransitionTime", fills, ""},
		{"reason", fills, ""},
		{"message", fills, "PodReadyToStartContainers has the message of a kubelet 1.37; the reason for a missing sandbox is in the states of the containers"},
	}},
	{Type: reflect.TypeFor[v1.ContainerStatus](), Title: "containerStatuses[], initContainerStatuses[], ephemeralContainerStatuses[]", Rows: []fieldtest.Row{
		{"name", fills, ""},
		{"state", fills, ""},
		{"lastState", fills, ""},
		{"ready", fills, ""},
		{"restartCount", fills, ""},
		{"image", fills, ""},
		{"imageID", fills, "repository and digest; the ID for an image from an archive"},
		{"containerID", fills, "containerd://ID"},
		{"started", fills, ""},
		{"allocatedResources", fillsW, "the container has requests; the value is what the node has allocated"},
		{"resources", fills, "what it has"},
		{"volumeMounts", fills, ""},
		{"user", fills, "the user with which the container was created"},
		{"allocatedResourcesStatus", fillsW, "the container has [devices](devices.md)"},
		{"stopSignal", fills, "if the container sets one"},
	}},
	{Type: reflect.TypeFor[v1.ContainerStateWaiting](), Title: "state.waiting", Rows: []fieldtest.Row{
		{"reason", fills, "ContainerCreating, PodInitializing, ErrImagePull, ImagePullBackOff, InvalidImageName, ErrImageNeverPull, ImageInspectError, CreateContainerConfigError, CreateContainerError, RunContainerError, PostStartHookError, CrashLoopBackOff, RestartingAllContainers"},
		{"message", fills, "also why the pod has no sandbox"},
	}},
	{Type: reflect.TypeFor[v1.ContainerStateRunning](), Title: "state.running", Rows: []fieldtest.Row{{"startedAt", fills, ""}}},
	{Type: reflect.TypeFor[v1.ContainerStateTerminated](), Title: "state.terminated", Rows: []fieldtest.Row{
		{"exitCode", fills, ""},
		{"signal", none, "as with a kubelet; the exit code is the signal's number plus 128"},
		{"reason", fills, "Completed, Error, OOMKilled, ContainerStatusUnknown, and StartError from the runtime"},
		{"message", fills, "the termination message, with a kubelet's limits"},
		{"startedAt", fills, ""},
		{"finishedAt", fills, ""},
		{"containerID", fills, ""},
	}},
	{Type: reflect.TypeFor[v1.VolumeMountStatus](), Title: "volumeMounts[]", Rows: []fieldtest.Row{
		{"name", fills, ""},
		{"mountPath", fills, ""},
		{"readOnly", fills, ""},
		{"recursiveReadOnly", fills, ""},
		{"volumeStatus", none, "it belongs to a feature that is off (ImageVolumeWithDigest)"},
	}},
	{Type: reflect.TypeFor[v1.LinuxContainerUser](), Title: "user.linux", Rows: []fieldtest.Row{
		{"uid", fills, ""},
		{"gid", fills, ""},
		{"supplementalGroups", fills, ""},
	}},
}

const statusHead = "# What a pod's status says\n\nThis page lists every field of a pod's status, in the order of the API (k8s.io/api), and whether this node sets it, as a kubelet 1.37 does. It is generated from the code; a test\n" +
	"fails if the API has a field that is not in the list, or if a field marked *filled* is empty in all pods of the tests.\n"

// TestEveryFieldOfAStatus checks that each field of the API has a row. A field that is documented as filled must be filled in at least one
// status of the tests.
func TestEveryFieldOfAStatus(t *testing.T) {
	shown := map[reflect.Type]map[string]bool{}
	for _, l := range lives() {
		filled(reflect.ValueOf(statusOf(l)), shown)
	}
	for _, st := range statusTypes {
		for _, r := range st.Rows {
			if is := shown[st.Type][r.Name()]; is != (r.Verdict() == fills) && r.Verdict() != fillsW {
				t.Errorf("%s.%s is documented as %s; filled in a life: %v", st.Type.Name(), r.Name(), r.Verdict(), is)
			}
		}
	}
	fieldtest.Check(t, statusFile, statusHead, statusTypes, *update)
}
