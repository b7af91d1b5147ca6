package check

import (
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// refusedVolumes returns the types of volumes that islet does not mount. In a cluster, CSI drivers have replaced most of them.
// docs/pod-fields.md has the same list.
func refusedVolumes() []string {
	return []string{"gcePersistentDisk", "awsElasticBlockStore", "gitRepo", "glusterfs", "rbd", "flexVolume", "cinder", "cephfs",
		"flocker", "fc", "azureFile", "vsphereVolume", "quobyte", "azureDisk", "photonPersistentDisk", "portworxVolume", "scaleIO",
		"storageos"}
}

// volumeTypes reports volumes whose type islet does not mount. A pod with such a volume cannot
// start.
func (p *pod) volumeTypes() {
	for i := range p.Spec.Volumes {
		name := volumeType(&p.Spec.Volumes[i].VolumeSource)
		if slices.Contains(refusedVolumes(), name) {
			at := field.NewPath("spec", "volumes").Index(i).Child(name)
			p.errorf(at.String(), "islet does not support volumes of this type; the pod cannot start")
		}
	}
}

// volumeType returns the JSON name of the source of a volume, or "".
func volumeType(s *v1.VolumeSource) string {
	v := reflect.ValueOf(s).Elem()
	for i := range v.NumField() {
		if !v.Field(i).IsNil() {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			return name
		}
	}
	return ""
}
