package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// A BoundField belongs to the node: what it is sent may change it only with consent.
type BoundField struct{ Field, Why string }

// Reasons that several fields share.
const (
	boundFile    = "a file or directory of this machine"
	boundPods    = "pods of the node's own end when it changes"
	boundNetwork = "a change rebuilds the pods' network"
	boundBridge  = "pods that run stay on the former bridge, which is there until the machine restarts and keeps its address: the other one needs another podCIDR, too"
	boundCIDR    = "pods that run keep their addresses, and others get new ones"
	boundCgroup  = "the cgroups of running pods are elsewhere when it changes"
	boundProgram = "a program of this machine, which runs as root"
	boundRuntime = "the runtime in which the containers are"
)

// Bound are the fields that belong to the node.
func Bound() []BoundField { return slices.Concat(local(), powers()) }

// local are the fields that belong to the node because of what is on this machine.
func local() []BoundField {
	return []BoundField{
		{"staticPodPath", boundPods}, {"staticPodURL", boundPods}, {"staticPodURLHeader", boundPods},
		{"podLogsDir", boundFile}, {"resolvConf", boundFile}, {"volumePluginDir", boundFile},
		{"tlsCertFile", boundFile}, {"tlsPrivateKeyFile", boundFile}, {"authentication.x509.clientCAFile", boundFile},
		{"podCIDR", boundCIDR}, {"userNamespaces.idsPerPod", "volumes of running pods are mapped by it"},
		{"cgroupDriver", boundCgroup}, {"cgroupRoot", boundCgroup}, {"cgroupsPerQOS", boundCgroup},
		{"kubeletCgroups", boundCgroup}, {"systemCgroups", boundCgroup}, {"systemReservedCgroup", boundCgroup}, {"kubeReservedCgroup", boundCgroup},
		{"containerRuntimeEndpoint", boundRuntime}, {"imageServiceEndpoint", boundRuntime}, {"providerID", "a Node's never changes"},
		{"edge.ociRuntime", boundProgram}, {"edge.runtimeHandlers", boundProgram}, {"edge.cniBinDirs", boundProgram},
		{"edge.bridgeName", boundBridge}, {"edge.networkPlugin", boundNetwork}, {"edge.cniConfDir", boundNetwork},
		{"edge.registryConfigDir", boundFile}, {"edge.imagesDir", boundFile}, {"edge.criSocket", boundFile},
		{"edge.configuration", "how the node is sent a configuration at all"}, {"edge.update", "whose programs the node runs"},
	}
}

// HeldByPods are those that change only while the node has no pods, whoever consents, and what
// would become of these.
func HeldByPods() []BoundField {
	const cgroups = "their cgroups would stay where they are, and be neither limited nor removed"
	return []BoundField{
		{"podLogsDir", "their logs would stay in the former directory, and be neither rotated nor removed"},
		{"cgroupDriver", cgroups}, {"cgroupRoot", cgroups},
	}
}

// Held says, by field, what of next cannot count instead of now while so many pods are here.
func Held(now, next *Config, pods int) []error {
	if pods == 0 {
		return nil
	}
	var errs []error
	err := differing(now, next, HeldByPods(), func(f BoundField, _ any) {
		errs = append(errs, field.Forbidden(field.NewPath(f.Field), fmt.Sprintf("there are %d pods here, and %s: remove the pods first, or change the node's own file and restart the machine", pods, f.Why)))
	})
	if err != nil {
		errs = append(errs, err)
	}
	return errs
}

// Withheld says, by field, what of next differs from now though it belongs to the node and
// consent does not name it. What next would set back to own, by the node's files alone, may well be
// left out of it: there the node has something else since an earlier consent, or a change of the
// files. A nil own is not known. Power that is given back to the node's own files needs no consent.
func Withheld(now, next, own *Config, consent []string) []error {
	var errs []error
	others := map[string]bool{} // than by the node's own files
	if own != nil {
		if err := differing(own, next, Bound(), func(b BoundField, _ any) { others[b.Field] = true }); err != nil {
			return []error{err}
		}
	}
	err := differing(now, next, Bound(), func(b BoundField, value any) {
		back := own != nil && !others[b.Field]
		if slices.Contains(consent, b.Field) || back && givesPower(b.Field) {
			return
		}
		errs = append(errs, field.Forbidden(field.NewPath(b.Field), "it belongs to the node ("+b.Why+")"+b.advice(value, back)))
	})
	if err != nil {
		errs = append(errs, err)
	}
	return errs
}

// advice says what to do about a change of the field, which is so now. Back: it becomes what the
// node's own files have.
func (b BoundField) advice(now any, back bool) string {
	const consent = "name it in configuration.consent of the node's EdgeConfiguration or with --consent"
	if !back {
		return ": leave it out, or " + consent
	}
	text := "what is in use now"
	switch now = full(now); now.(type) {
	case nil: // an empty value is as good as none, without consent
		return " and is empty now, but not in the node's own files, which count again: " + consent + ", and have it empty if it is to stay so"
	case []any, map[string]any:
	default:
		if b.Field != "staticPodURL" { // which may hold a password
			text = fmt.Sprintf("%v, which is in use now", now)
		}
	}
	return " and is now another than in the node's own files, which count again where it is left out: set it to " + text + ", or " + consent
}

// differing calls found with those fields that are another in next than in now, and what now has.
func differing(now, next *Config, fields []BoundField, found func(BoundField, any)) error {
	was, werr := tree(now)
	will, nerr := tree(next)
	if err := errors.Join(werr, nerr); err != nil {
		return err
	}
	for _, f := range fields {
		before, _ := at(was, f.Field)
		after, _ := at(will, f.Field)
		if !reflect.DeepEqual(full(before), full(after)) {
			found(f, before)
		}
	}
	return nil
}

// IsBound reports whether a field belongs to the node.
func IsBound(name string) bool {
	return slices.ContainsFunc(Bound(), func(b BoundField) bool { return b.Field == name })
}
