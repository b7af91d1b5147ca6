package translate

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Node contains the facts about the node that are needed for the configurations. Its addresses and resolv.conf may
// change while the agent runs.
type Node struct {
	Name           string
	IPs            []string // the primary address is the first
	ClusterDNS     []string
	ClusterDomain  string
	Resolv         DNS      // from the host's resolv.conf or the file of --resolv-conf
	NoResolv       bool     // set if --resolv-conf is empty; then the node itself is the DNS server
	LogDir         string   // directory of all pods' logs: /var/log/pods
	SeccompDir     string   // directory of Localhost profiles: <root-dir>/seccomp
	Throttles      []string // directories in /sys that are hidden from containers
	SeccompDefault bool     // set if RuntimeDefault is the default seccomp profile
	CPUPeriod      int64    // period of CPU quotas, in microseconds; 0 means 100 ms, a negative value that CPU limits are not enforced
	OOMGroup       bool     // set if the OOM killer kills all processes of a container; requires cgroup v2
	SwapCgroup     int      // cgroup version for the swap limits; 0 if swap is not limited
	MemoryBytes    int64    // memory capacity, for oom_score_adj and swap
	SwapBytes      int64    // the host's swap that burstable containers share; 0 if they get none
	MemoryQoS      *QoS     // nil on cgroup v1, which has no memory protection and throttling
	Allocatable    v1.ResourceList
	Sysctls        map[string]string // defaultPodSysctls; they apply to a pod that does not set them and that has the namespace for itself
	// Exclusive reports whether a container has exclusive CPUs. Such a container has no CPU quota. Exclusive may be
	// nil.
	Exclusive func(uid types.UID, container string) bool
}

// PodLogDir returns the path of the pod's log directory, which is a subdirectory of dir. It has the same name as in
// a kubelet.
func PodLogDir(dir string, pod *v1.Pod) string {
	return dir + "/" + pod.Namespace + "_" + pod.Name + "_" + string(pod.UID)
}
