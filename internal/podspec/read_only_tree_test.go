package podspec_test

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/podspec"
)

func TestReadOnlyTree(t *testing.T) {
	off, maybe, on := v1.RecursiveReadOnlyDisabled, v1.RecursiveReadOnlyIfPossible, v1.RecursiveReadOnlyEnabled
	none, host := v1.MountPropagationNone, v1.MountPropagationHostToContainer
	for name, c := range map[string]struct {
		m     v1.VolumeMount
		can   bool
		want  bool
		fails string
	}{
		"unset":                 {v1.VolumeMount{ReadOnly: true}, true, false, ""},
		"disabled":              {v1.VolumeMount{ReadOnly: true, RecursiveReadOnly: &off}, true, false, ""},
		"if possible, is":       {v1.VolumeMount{ReadOnly: true, RecursiveReadOnly: &maybe, MountPropagation: &none}, true, true, ""},
		"if possible, is not":   {v1.VolumeMount{ReadOnly: true, RecursiveReadOnly: &maybe}, false, false, ""},
		"enabled, is possible":  {v1.VolumeMount{ReadOnly: true, RecursiveReadOnly: &on}, true, true, ""},
		"enabled, not possible": {v1.VolumeMount{ReadOnly: true, RecursiveReadOnly: &on}, false, false, "not supported by the runtime"},
		"not read-only":         {v1.VolumeMount{RecursiveReadOnly: &maybe}, true, false, "not read-only"},
		"propagation":           {v1.VolumeMount{ReadOnly: true, RecursiveReadOnly: &maybe, MountPropagation: &host}, true, false, "propagation"},
	} {
		got, err := podspec.ReadOnlyTree(&c.m, func() bool { return c.can })
		if got != c.want || (err != nil) != (c.fails != "") || err != nil && !strings.Contains(err.Error(), c.fails) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
