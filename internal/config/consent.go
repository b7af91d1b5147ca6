package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// A BoundField is a field that belongs to the node: a sent configuration may change it only with
// consent.
type BoundField struct{ Field, Why string }

// These reasons apply to several fields.
const (
	boundFile    = "a file or directory of this machine"
	boundPods    = "a change ends the node's own pods"
	boundNetwork = "a change rebuilds the pods' network"
	boundBridge  = "running pods stay on the old bridge, which keeps its address until the machine restarts, so " +
		"the new bridge also needs another podCIDR"
	boundCIDR    = "running pods keep their addresses, and only new pods get addresses of the new network"
	boundCgroup  = "running pods stay in their old cgroups"
	boundProgram = "a program of this machine that runs as root"
	boundRuntime = "the runtime that has the containers"
	boundKey     = "with a wrong value, the key of the database does not open"
)

// BoundFields returns the fields that belong to the node.
func BoundFields() []BoundField { return slices.Concat(localFields(), powerFields()) }

// localFields returns the fields that belong to the node because they depend on this machine.
func localFields() []BoundField {
	return []BoundField{
		{"staticPodPath", boundPods}, {"staticPodURL", boundPods}, {"staticPodURLHeader", boundPods},
		{"podLogsDir", boundFile}, {"resolvConf", boundFile}, {"volumePluginDir", boundFile},
		{"tlsCertFile", boundFile}, {"tlsPrivateKeyFile", boundFile}, {"authentication.x509.clientCAFile", boundFile},
		{"podCIDR", boundCIDR}, {"userNamespaces.idsPerPod", "the volumes of running pods are mapped with it"},
		{"cgroupDriver", boundCgroup}, {"cgroupRoot", boundCgroup}, {"cgroupsPerQOS", boundCgroup},
		{"kubeletCgroups", boundCgroup}, {"systemCgroups", boundCgroup}, {"systemReservedCgroup", boundCgroup},
		{"kubeReservedCgroup", boundCgroup},
		{"containerRuntimeEndpoint", boundRuntime}, {"imageServiceEndpoint", boundRuntime}, {"providerID", "the " +
			"provider ID of a Node never changes"},
		{"edge.ociRuntime", boundProgram}, {"edge.runtimeHandlers", boundProgram}, {"edge.cniBinDirs", boundProgram},
		{"edge.bridgeName", boundBridge}, {"edge.networkPlugin", boundNetwork}, {"edge.cniConfDir", boundNetwork},
		{"edge.registryConfigDir", boundFile}, {"edge.imagesDir", boundFile}, {"edge.criSocket", boundFile},
		{"edge.configuration", "how the node receives configurations"}, {"edge.update", "who may sign the programs that the node runs"},
		{"edge.bundle", "who may sign the pods that the node runs"},
		{"edge.tpm.device", boundKey}, {"edge.tpm.policies", boundKey},
		{"edge.k3s.directory", "the cluster that the node belongs to"},
	}
}

// HeldByPods returns the fields that cannot change while the node has pods, even with consent. Each element also
// contains the effect that the change would have on the pods.
func HeldByPods() []BoundField {
	const cgroups = "their cgroups would stay in place without limits and would not be removed"
	return []BoundField{
		{"podLogsDir", "their logs would stay in the old directory and would be neither rotated nor removed"},
		{"cgroupDriver", cgroups}, {"cgroupRoot", cgroups},
	}
}

// CheckHeld returns an error for each field that must not change while the node has pods, but differs between the two configurations. The
// errors contain the number of pods. The configuration of a bundle must not change these fields on a node without pods either: if the
// bundle fails or is reverted, the node returns to the present configuration while pods of the bundle run.
func CheckHeld(current, next *Config, pods int, ofBundle bool) []error {
	if pods == 0 && !ofBundle {
		return nil
	}
	var errs []error
	err := visitChanges(current, next, HeldByPods(), func(f BoundField, _ any) {
		why := fmt.Sprintf("this node has %d pods, and %s: remove the pods first, or change", pods, f.Why)
		if ofBundle {
			why = "a bundle cannot change it, because its pods may run when the node returns to the present configuration, and " + f.Why +
				": change"
		}
		errs = append(errs, field.Forbidden(field.NewPath(f.Field), why+" the node's own file and restart the machine"))
	})
	if err != nil {
		errs = append(errs, err)
	}
	return errs
}

// CheckConsent returns an error for each field of the node that the next configuration changes without consent. A field that gives power
// may change back to its value in the node's own files without consent. There are two reasons why the field can have another value at
// present: an earlier configuration changed it with consent, or the files have changed since the start. The parameter own is the
// configuration from the node's own files alone. It is nil if this configuration is unknown.
func CheckConsent(current, next, own *Config, consent []string) []error {
	var errs []error
	changed := map[string]bool{} // fields whose value in next differs from the value in own
	if own != nil {
		if err := visitChanges(own, next, BoundFields(), func(b BoundField, _ any) { changed[b.Field] = true }); err != nil {
			return []error{err}
		}
	}
	err := visitChanges(current, next, BoundFields(), func(b BoundField, value any) {
		restores := own != nil && !changed[b.Field]
		if slices.Contains(consent, b.Field) || restores && givesPower(b.Field) {
			return
		}
		errs = append(errs, field.Forbidden(field.NewPath(b.Field), "it belongs to the node ("+b.Why+")"+b.changeHint(value, restores)))
	})
	if err != nil {
		errs = append(errs, err)
	}
	return errs
}

// changeHint returns the part of an error message that describes how to avoid the error. It contains the field's present value. A change
// that would restore the value of the node's own files gets another hint.
func (b BoundField) changeHint(current any, restores bool) string {
	const consent = "name it in configuration.consent of the node's EdgeConfiguration, or with --consent of islet config apply"
	if !restores {
		return ": leave it out, or " + consent
	}
	text := "what is in use now"
	switch current = nonEmpty(current); current.(type) {
	case nil: // without consent, an empty value cannot replace the value in the node's own files
		return " and is empty now, but next would take its value from the node's own files: " + consent +
			", and set it to the empty value to keep it empty"
	case []any, map[string]any:
	default:
		if b.Field != "staticPodURL" { // the value may contain a password
			text = fmt.Sprintf("%v, which is in use now", current)
		}
	}
	return " and its present value differs from the node's own files, whose value applies if it is left out: set it to " +
		text + ", or " + consent
}

// visitChanges calls visit for each of the given fields that differs between the two configurations. It passes the
// field and the field's value in the current configuration.
func visitChanges(current, next *Config, fields []BoundField, visit func(BoundField, any)) error {
	currentTree, werr := settingsTree(current)
	nextTree, nerr := settingsTree(next)
	if err := errors.Join(werr, nerr); err != nil {
		return err
	}
	for _, f := range fields {
		before, _ := valueAt(currentTree, f.Field)
		after, _ := valueAt(nextTree, f.Field)
		if !reflect.DeepEqual(nonEmpty(before), nonEmpty(after)) {
			visit(f, before)
		}
	}
	return nil
}

// IsBound reports whether a field belongs to the node.
func IsBound(name string) bool {
	return slices.ContainsFunc(BoundFields(), func(b BoundField) bool { return b.Field == name })
}
