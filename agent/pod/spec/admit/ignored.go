package admit

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/islet-edge/islet/internal/config"
)

// An IgnoredField is a field of a pod that has no effect on this node. Such fields are reported to users.
type IgnoredField struct {
	Field  string // path of the field, such as spec.volumes[1].emptyDir.sizeLimit
	Effect string // the rest of a sentence that begins with the field
}

func (i IgnoredField) String() string { return i.Field + " " + i.Effect }

// maxSentence is the maximum length in bytes of the result of DescribeIgnored, which must fit
// into an event.
const maxSentence = 1000

// DescribeIgnored returns one line that describes all ignored fields.
func DescribeIgnored(list []IgnoredField) string {
	var b strings.Builder
	b.WriteString("This node accepts fields that do not act: ")
	for i, f := range list {
		switch text := f.String(); {
		case i > 0 && b.Len()+len(text) > maxSentence:
			fmt.Fprintf(&b, "; and %d more", len(list)-i)
			return b.String()
		case i > 0:
			b.WriteString("; " + text)
		default:
			b.WriteString(text)
		}
	}
	return b.String()
}

// An ignoredRow is one row of the tables of ignored fields.
type ignoredRow struct {
	present bool
	path    *field.Path
	effect  string
}

// IgnoredFields returns the fields of a pod that have no effect on the node, in the order of the manifest. When a
// field has been implemented, remove its row here. These rows are the source of the warnings of islet apply, of the
// event FieldIgnored and of a line in islet status.
func IgnoredFields(pod *v1.Pod, n Node) (out []IgnoredField) {
	eachContainer(pod, func(at *field.Path, c *v1.Container) {
		level := n.SELinux != nil && seLinuxOptions(pod, c).Level != ""
		out = appendIgnored(out, append(containerRows(at, c, n), ignoredRow{level, at.Child("securityContext", "seLinuxOptions", "level"),
			"does not act: SELinux is not enabled on the host"}))
	})
	spec := field.NewPath("spec")
	for i := range pod.Spec.Volumes {
		out = appendIgnored(out, volumeRows(spec.Child("volumes").Index(i), &pod.Spec.Volumes[i], n))
	}
	return out
}

func containerRows(at *field.Path, c *v1.Container, n Node) []ignoredRow {
	_, disk := c.Resources.Limits[v1.ResourceEphemeralStorage]
	return []ignoredRow{
		{disk && !n.Limits, at.Child("resources", "limits").Key(string(v1.ResourceEphemeralStorage)),
			"is not enforced: the pod is not evicted for what it writes (localStorageCapacityIsolation is false)"},
	}
}

func volumeRows(at *field.Path, v *v1.Volume, n Node) []ignoredRow {
	e := v.EmptyDir
	rows := []ignoredRow{{e != nil && e.SizeLimit != nil && e.Medium == v1.StorageMediumDefault && !n.Quotas && !n.Limits,
		at.Child("emptyDir", "sizeLimit"),
		"is not enforced on disk, whose file system has no project quotas: the volume can fill it " +
			"(localStorageCapacityIsolation is false)"}}
	if !slices.Contains(n.Alpha, config.GateEmptyDirMode) {
		rows = append(rows, ignoredRow{e != nil && e.Mode != nil, at.Child("emptyDir", "mode"),
			"does not act, because the feature gate " + config.GateEmptyDirMode + " is off: every user may write to the volume"})
	}
	if !slices.Contains(n.Alpha, config.GateFileOwners) {
		rows = append(rows, ignoredRow{setsOwner(v), at, "sets the user of files, which does not act, because the feature gate " +
			config.GateFileOwners + " is off: the files belong to root"})
	}
	return rows
}

// setsOwner reports whether a volume sets the user to whom its files belong.
func setsOwner(v *v1.Volume) bool {
	keys := func(user *int64, items []v1.KeyToPath) bool {
		return user != nil || slices.ContainsFunc(items, func(k v1.KeyToPath) bool { return k.User != nil })
	}
	fields := func(user *int64, items []v1.DownwardAPIVolumeFile) bool {
		return user != nil || slices.ContainsFunc(items, func(f v1.DownwardAPIVolumeFile) bool { return f.User != nil })
	}
	switch {
	case v.ConfigMap != nil:
		return keys(v.ConfigMap.DefaultUser, v.ConfigMap.Items)
	case v.Secret != nil:
		return keys(v.Secret.DefaultUser, v.Secret.Items)
	case v.DownwardAPI != nil:
		return fields(v.DownwardAPI.DefaultUser, v.DownwardAPI.Items)
	case v.Projected == nil:
		return false
	}
	return v.Projected.DefaultUser != nil || slices.ContainsFunc(v.Projected.Sources, func(s v1.VolumeProjection) bool {
		return s.ConfigMap != nil && keys(nil, s.ConfigMap.Items) || s.Secret != nil && keys(nil, s.Secret.Items) ||
			s.DownwardAPI != nil && fields(nil, s.DownwardAPI.Items) ||
			s.ServiceAccountToken != nil && s.ServiceAccountToken.User != nil ||
			s.ClusterTrustBundle != nil && s.ClusterTrustBundle.User != nil || s.PodCertificate != nil && s.PodCertificate.User != nil
	})
}

func appendIgnored(out []IgnoredField, rows []ignoredRow) []IgnoredField {
	for _, r := range rows {
		if r.present {
			out = append(out, IgnoredField{r.path.String(), r.effect})
		}
	}
	return out
}

// eachContainer calls the function for the init containers, and then for the main containers.
func eachContainer(pod *v1.Pod, visit func(*field.Path, *v1.Container)) {
	spec := field.NewPath("spec")
	for i := range pod.Spec.InitContainers {
		visit(spec.Child("initContainers").Index(i), &pod.Spec.InitContainers[i])
	}
	for i := range pod.Spec.Containers {
		visit(spec.Child("containers").Index(i), &pod.Spec.Containers[i])
	}
}
