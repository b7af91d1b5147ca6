package admit

import (
	"flag"
	"reflect"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/fieldtest"
)

var updateFields = flag.Bool("update", false, "write docs/pod-fields.md")

const fieldsFile = "../../../../docs/pod-fields.md"

// These constants say whether the node supports a field.
const (
	works          = "works"
	partly         = "partly"
	refused        = "refused"
	actedElsewhere = "not the node's" // the scheduler, the API server or a controller uses the field
	windows        = "Windows"        // Kubernetes rejects the field on Linux too
)

// This list contains the types whose fields are documented, in the order of the page. Each field has a row.
var fieldTypes = []fieldtest.Table{
	{Type: reflect.TypeFor[v1.PodSpec](), Title: "spec", Rows: []fieldtest.Row{
		{"volumes", works, "their kinds are below"},
		{"initContainers", works, "sidecars too"},
		{"containers", works, ""},
		{"ephemeralContainers", works, ""},
		{"restartPolicy", works, ""},
		{"terminationGracePeriodSeconds", works, ""},
		{"activeDeadlineSeconds", works, "measured by a monotonic clock"},
		{"dnsPolicy", works, ""},
		{"nodeSelector", works, "checked again at admission, also of static pods"},
		{"serviceAccountName", works, "a projected volume provides its token"},
		{"serviceAccount", works, "the old name of serviceAccountName"},
		{"automountServiceAccountToken", actedElsewhere, "the API server adds the volume"},
		{"nodeName", works, "a pod that names another node is rejected, also in a manifest"},
		{"hostNetwork", works, ""},
		{"hostPID", works, ""},
		{"hostIPC", works, ""},
		{"shareProcessNamespace", works, "the pod's init process runs as an unprivileged user, without capabilities and write access"},
		{"securityContext", works, "its fields are below"},
		{"imagePullSecrets", works, "of the API server, or [from manifests](standalone.md)"},
		{"hostname", works, ""},
		{"subdomain", works, ""},
		{"affinity", works, "required node affinity is checked at admission; the scheduler evaluates the rest"},
		{"schedulerName", actedElsewhere, ""},
		{"tolerations", works, "those of NoExecute taints are checked at admission; the scheduler and controllers evaluate the rest"},
		{"hostAliases", works, ""},
		{"priorityClassName", works, "the API server resolves it to priority; a manifest on the node can use only the system's classes"},
		{"priority", works, "determines which pods the kernel kills last, which make room for a critical pod, and which stop first at a shutdown"},
		{"dnsConfig", works, ""},
		{"readinessGates", works, ""},
		{"runtimeClassName", works, "see [runtime classes](runtime-classes.md)"},
		{"enableServiceLinks", works, ""},
		{"preemptionPolicy", actedElsewhere, ""},
		{"overhead", works, ""},
		{"topologySpreadConstraints", actedElsewhere, ""},
		{"setHostnameAsFQDN", works, ""},
		{"os", works, "a pod for another system is rejected"},
		{"hostUsers", works, "if kernel, file systems and OCI runtime support idmapped mounts ([user namespaces](user-namespaces.md)); otherwise the pod waits, with a kubelet's event"},
		{"schedulingGates", actedElsewhere, ""},
		{"resourceClaims", works, "[dynamic resources](devices.md#dynamic-resources); not of static pods"},
		{"resources", works, "of the pod as a whole"},
		{"hostnameOverride", works, ""},
		{"schedulingGroup", actedElsewhere, ""},
		{"evictionResponders", actedElsewhere, ""},
	}},
	{Type: reflect.TypeFor[v1.PodSecurityContext](), Title: "spec.securityContext", Rows: []fieldtest.Row{
		{"seLinuxOptions", works, "if SELinux is on; otherwise refused, except a level alone, which is reported and ignored"},
		{"windowsOptions", windows, ""},
		{"runAsUser", works, ""},
		{"runAsGroup", works, ""},
		{"runAsNonRoot", works, "checked against the resolved ID of the image's user"},
		{"supplementalGroups", works, ""},
		{"supplementalGroupsPolicy", works, "`Strict` is refused if a [remote runtime](remote-runtimes.md) does not support it"},
		{"fsGroup", works, ""},
		{"sysctls", works, "safe ones, and those of allowedUnsafeSysctls"},
		{"fsGroupChangePolicy", works, "of PersistentVolumes; see [volumes](volumes.md)"},
		{"seccompProfile", works, ""},
		{"appArmorProfile", works, "if AppArmor is on; otherwise refused"},
		{"seLinuxChangePolicy", works, "MountOption has an effect for PersistentVolumes of iSCSI and of CSI drivers with seLinuxMount; the files of all other volumes are relabelled"},
	}},
	{Type: reflect.TypeFor[v1.Container](), Title: "spec.containers[], initContainers[], ephemeralContainers[]", Rows: []fieldtest.Row{
		{"name", works, ""},
		{"image", works, "a new image on a running pod replaces the container"},
		{"command", works, ""},
		{"args", works, ""},
		{"workingDir", works, ""},
		{"ports", works, "hostPort and hostIP by nftables. Host ports of init containers that are not sidecars have no effect, " +
			"as with a kubelet. A hostIP of a family that the pod does not have is an error, " +
			"unless the same port is open in the pod's family"},
		{"envFrom", works, ""},
		{"env", works, "the sources of values are below"},
		{"resources", works, "limits and requests of CPU, memory, huge pages, extended resources; CPU and memory change in place, see [the life of a pod](pod-life.md); a pod that exceeds a limit of ephemeral-storage is [evicted](resources.md#limits-on-files)"},
		{"resizePolicy", works, "see [the life of a pod](pod-life.md)"},
		{"restartPolicy", works, ""},
		{"restartPolicyRules", works, ""},
		{"volumeMounts", works, "their fields are below"},
		{"volumeDevices", works, "block volumes of local, hostPath, iSCSI and CSI PersistentVolumes"},
		{"livenessProbe", works, ""},
		{"readinessProbe", works, ""},
		{"startupProbe", works, ""},
		{"lifecycle", works, "see [the life of a pod](pod-life.md)"},
		{"terminationMessagePath", works, ""},
		{"terminationMessagePolicy", works, ""},
		{"imagePullPolicy", works, "`Always` uses the local image if the registry cannot be reached"},
		{"securityContext", works, "its fields are below"},
		{"stdin", works, ""},
		{"stdinOnce", works, ""},
		{"tty", works, ""},
	}},
	{Type: reflect.TypeFor[v1.EphemeralContainer](), Title: "spec.ephemeralContainers[]", Rows: []fieldtest.Row{
		{"targetContainerName", works, ""},
	}},
	{Type: reflect.TypeFor[v1.SecurityContext](), Title: "securityContext of a container", Rows: []fieldtest.Row{
		{"capabilities", works, ""},
		{"privileged", works, ""},
		{"seLinuxOptions", works, "if SELinux is on; otherwise refused, except a level alone, which is reported and ignored"},
		{"windowsOptions", windows, ""},
		{"runAsUser", works, ""},
		{"runAsGroup", works, ""},
		{"runAsNonRoot", works, ""},
		{"readOnlyRootFilesystem", works, ""},
		{"allowPrivilegeEscalation", works, ""},
		{"procMount", works, "`Unmasked` needs `hostUsers: false` by the rules of the API"},
		{"seccompProfile", works, ""},
		{"appArmorProfile", works, "if AppArmor is on; otherwise refused"},
	}},
	{Type: reflect.TypeFor[v1.VolumeMount](), Title: "volumeMounts[]", Rows: []fieldtest.Row{
		{"name", works, ""},
		{"readOnly", works, ""},
		{"recursiveReadOnly", works, "if kernel and OCI runtime support it (runc 1.1, crun 1.4). Otherwise `IfPossible` means plain read-only, and with `Enabled` the container does not start"},
		{"mountPath", works, ""},
		{"subPath", works, ""},
		{"mountPropagation", works, "`Bidirectional` requires that the path is in a shared mount of the host, and `HostToContainer` that it is in a shared or slave mount; otherwise the pod is refused"},
		{"subPathExpr", works, ""},
		{"bindMountOptions", works, "with the feature gate VolumeBindMountOptions and a runtime that supports it; otherwise refused"},
	}},
	{Type: reflect.TypeFor[v1.EnvVarSource](), Title: "env[].valueFrom", Rows: []fieldtest.Row{
		{"fieldRef", works, ""},
		{"resourceFieldRef", works, ""},
		{"configMapKeyRef", works, "of the API server, or [from manifests](standalone.md)"},
		{"secretKeyRef", works, "of the API server, or [from manifests](standalone.md)"},
		{"fileKeyRef", works, "files of at most 64 KiB in an emptyDir"},
	}},
	{Type: reflect.TypeFor[v1.LifecycleHandler](), Title: "lifecycle.postStart, lifecycle.preStop", Rows: []fieldtest.Row{
		{"exec", works, ""},
		{"httpGet", works, ""},
		{"tcpSocket", refused, "the hook fails when it runs, as on every kubelet"},
		{"sleep", works, ""},
	}},
	{Type: reflect.TypeFor[v1.Probe](), Title: "startupProbe, readinessProbe, livenessProbe", Rows: []fieldtest.Row{
		{"exec", works, ""},
		{"httpGet", works, ""},
		{"tcpSocket", works, ""},
		{"grpc", works, ""},
		{"initialDelaySeconds", works, ""},
		{"timeoutSeconds", works, ""},
		{"periodSeconds", works, ""},
		{"successThreshold", works, ""},
		{"failureThreshold", works, ""},
		{"terminationGracePeriodSeconds", works, ""},
	}},
	{Type: reflect.TypeFor[v1.VolumeSource](), Title: "volumes[]", Rows: []fieldtest.Row{
		{"hostPath", works, ""},
		{"emptyDir", works, "a sizeLimit is enforced in memory, in huge pages, and on disk where its file system has project quotas; elsewhere a pod that exceeds it is [evicted](resources.md#limits-on-files). `mode` needs the feature gate EmptyDirVolumeMode"},
		{"gcePersistentDisk", refused, ""},
		{"awsElasticBlockStore", refused, ""},
		{"gitRepo", refused, ""},
		{"secret", works, "of the API server, or [from manifests](standalone.md). `defaultUser` and `user` need the feature gate AtomicWriteVolumeUserFields"},
		{"nfs", works, "needs the host's mount.nfs"},
		{"iscsi", partly, "needs the host's iscsiadm; initiatorName is refused; several portals are tried one after the other, without multipath"},
		{"glusterfs", refused, ""},
		{"persistentVolumeClaim", works, "bound to a hostPath, local, NFS, iSCSI or CSI volume, see [volumes](volumes.md); a claim of a manifest becomes a directory, see [a node without a cluster](standalone.md)"},
		{"rbd", refused, ""},
		{"flexVolume", refused, ""},
		{"cinder", refused, ""},
		{"cephfs", refused, ""},
		{"flocker", refused, ""},
		{"downwardAPI", works, "`defaultUser` and `user` need the feature gate AtomicWriteVolumeUserFields"},
		{"fc", refused, ""},
		{"azureFile", refused, ""},
		{"configMap", works, "of the API server, or [from manifests](standalone.md). `defaultUser` and `user` need the feature gate AtomicWriteVolumeUserFields"},
		{"vsphereVolume", refused, ""},
		{"quobyte", refused, ""},
		{"azureDisk", refused, ""},
		{"photonPersistentDisk", refused, ""},
		{"projected", works, "its sources are below. `defaultUser` and `user` need the feature gate AtomicWriteVolumeUserFields"},
		{"portworxVolume", refused, ""},
		{"scaleIO", refused, ""},
		{"storageos", refused, ""},
		{"csi", works, "inline, of a driver that is registered on the node and whose CSIDriver lists Ephemeral; see [volumes](volumes.md)"},
		{"ephemeral", works, "as a claim that the control plane makes for the pod"},
		{"image", works, "pulled when a container that mounts it starts"},
	}},
	{Type: reflect.TypeFor[v1.VolumeProjection](), Title: "volumes[].projected.sources[]", Rows: []fieldtest.Row{
		{"secret", works, ""},
		{"downwardAPI", works, ""},
		{"configMap", works, ""},
		{"serviceAccountToken", works, ""},
		{"clusterTrustBundle", works, "by name, or by signerName and labels; of pods of an API server"},
		{"podCertificate", works, "kept, sealed, over restarts and without a link; of pods of an API server"},
	}},
}

const fieldsHead = "# What a pod's fields do\n\nThis page lists every field of a pod's spec, in the order of the API (k8s.io/api), and its effect on this node. It is generated from the code; a test fails if\n" +
	"the API has a field that is not in the list. *Refused*: the pod does not start, with an error that names the field. *Partly*: the note says what is missing. `islet apply`,\n" +
	"the event `FieldIgnored` and `islet status` report fields that have no effect.\n"

func TestEveryFieldHasAVerdict(t *testing.T) {
	for _, ft := range fieldTypes {
		for _, r := range ft.Rows {
			if r.Verdict() == partly && r.Note() == "" {
				t.Errorf("%s.%s: the note on the missing part is empty", ft.Type.Name(), r.Name())
			}
		}
	}
	// The two types of containers have the same fields, except for the target.
	if want := fieldtest.Names(reflect.TypeFor[v1.EphemeralContainerCommon]()); !slices.Equal(want,
		fieldtest.Names(reflect.TypeFor[v1.Container]())) {
		t.Errorf("ephemeral containers have fields of their own: %v", want)
	}
	fieldtest.Check(t, fieldsFile, fieldsHead, fieldTypes, *updateFields)
}
