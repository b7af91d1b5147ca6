package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/islet-edge/islet/internal/download"
	"github.com/islet-edge/islet/internal/inputweight"
	"github.com/islet-edge/islet/internal/podspec"
	"github.com/islet-edge/islet/internal/release"
)

// MaxSent is the maximum size of a sent document in bytes. It is the size limit of a ConfigMap.
const MaxSent = 1 << 20

// SentConfiguration is a configuration that was sent to the running node.
type SentConfiguration struct {
	Name          string // the name of the configuration's source, for messages
	Kubelet, Edge []byte // YAML or JSON; the node's own file is used in place of an empty document
	// Consent lists the fields of the node that the configuration may change. The configuration may
	// also set these fields to the empty value.
	Consent []string
	// Binding is the version of BoundFields under which the configuration was accepted. In version 0, fields that give power
	// did not belong to the node. So a configuration of version 0 does not take the values of these fields from the node's
	// own files.
	Binding int
}

// loadSent calls readSent with the directories of the command line and returns its result. It returns nil if
// readSent is nil.
func loadSent(o *options, readSent func(Dirs) (*SentConfiguration, error)) (*SentConfiguration, error) {
	if readSent == nil {
		return nil, nil
	}
	dirs, err := deriveDirs(o)
	if err != nil {
		return nil, err
	}
	return readSent(dirs)
}

// decodeOver decodes a document strictly into v and returns the document. If the document does not set a field that
// belongs to the node, the field gets its value from the node's own configuration. An empty value counts as not set,
// because tools such as kubeadm write complete configurations, with empty values for settings that differ per node.
func (s *SentConfiguration) decodeOver(data []byte, apiVersion, kind string, own, v any, prefix string) (out document, _ error) {
	name := strings.TrimSpace(s.Name + " " + kind)
	if len(data) > MaxSent {
		return out, &FileError{File: name, Detail: fmt.Sprintf("is %d bytes long, but at most %d are allowed", len(data), MaxSent)}
	}
	if err := checkWeight(name, data); err != nil {
		return out, err
	}
	doc, err := decode(name, data, apiVersion, kind, v)
	if err != nil {
		return out, err
	}
	var errs []error
	if kind == kubeletKind {
		errs = append(errs, checkAbsolute(name, doc, kubeletPathNames()))
	} else {
		errs = append(errs, checkAbsolute(name, doc, edgePathNames()))
	}
	if err := errors.Join(errs...); err != nil {
		return out, err
	}
	mine, err := json.Marshal(own)
	if err != nil {
		return out, err
	}
	all, err := decodeTree(mine)
	if err != nil {
		return out, err
	}
	sent, err := decodeTree(doc)
	if err != nil {
		return out, err
	}
	kept := map[string]any{}
	bound := BoundFields()
	if s.Binding < Binding {
		bound = localFields()
	}
	for _, b := range bound {
		path, ok := strings.CutPrefix(b.Field, prefix)
		if !ok || prefix == "" && strings.HasPrefix(path, "edge.") {
			continue
		}
		if value, set := valueAt(all, path); set {
			setValue(kept, path, value)
		}
		if value, set := valueAt(sent, path); set && nonEmpty(value) == nil && !slices.Contains(s.Consent, b.Field) {
			removeValue(sent, path)
		}
	}
	merged, err := json.Marshal(mergeTrees(kept, sent))
	if err != nil {
		return out, err
	}
	reflect.ValueOf(v).Elem().SetZero()
	return document{name, doc, data}, json.Unmarshal(merged, v)
}

// checkAbsolute returns an error for each relative path in the given fields, because a sent
// document has no directory.
func checkAbsolute(name string, doc []byte, fields []string) error {
	tree, err := decodeTree(doc)
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range fields {
		value, _ := valueAt(tree, f)
		list, _ := value.([]any)
		if text, one := value.(string); one {
			list = []any{text}
		}
		for _, e := range list {
			if text, ok := e.(string); ok && text != "" && !strings.HasPrefix(text, "/") {
				errs = append(errs, &FileError{File: name, Field: f, Detail: fmt.Sprintf("%q is not an absolute path", text)})
			}
		}
	}
	return errors.Join(errs...)
}

func kubeletPathNames() []string {
	return []string{"staticPodPath", "authentication.x509.clientCAFile", "tlsCertFile", "tlsPrivateKeyFile",
		"volumePluginDir", "podLogsDir", "resolvConf"}
}

func edgePathNames() []string {
	return []string{"cniConfDir", "cniBinDirs", "registryConfigDir", "imagesDir", "criSocket"}
}

// valueAt returns the value at a path in a decoded JSON tree.
func valueAt(tree any, path string) (any, bool) {
	for key := range strings.SplitSeq(path, ".") {
		m, ok := tree.(map[string]any)
		if !ok {
			return nil, false
		}
		if tree, ok = m[key]; !ok {
			return nil, false
		}
	}
	return tree, true
}

func setValue(tree map[string]any, path string, value any) {
	key, rest, more := strings.Cut(path, ".")
	if !more {
		tree[key] = value
		return
	}
	below, ok := tree[key].(map[string]any)
	if !ok {
		below = map[string]any{}
		tree[key] = below
	}
	setValue(below, rest, value)
}

// removeValue removes the value at a path, which must exist.
func removeValue(tree any, path string) {
	key, rest, more := strings.Cut(path, ".")
	below := tree.(map[string]any)
	if !more {
		delete(below, key)
		return
	}
	removeValue(below[key], rest)
}

// SameManifests reports whether both configurations have the same sources of static pods.
func SameManifests(a, b *Config) bool {
	x, y := &a.Kubelet, &b.Kubelet
	return x.StaticPodPath == y.StaticPodPath && x.StaticPodURL == y.StaticPodURL && maps.EqualFunc(x.StaticPodURLHeader,
		y.StaticPodURLHeader, slices.Equal)
}

// SamePressure reports whether both configurations have the same eviction thresholds and the same limits for pods.
func SamePressure(a, b *Config) bool {
	limits := func(c *Config) []any {
		k := &c.Kubelet
		return []any{
			k.EvictionHard, k.EvictionSoft, k.EvictionSoftGracePeriod, k.EvictionMinimumReclaim,
			k.EvictionPressureTransitionPeriod, k.SystemReserved, k.KubeReserved, k.ReservedMemory, k.PodPidsLimit,
			k.EnforceNodeAllocatable, k.ContainerLogMaxSize, k.ContainerLogMaxFiles, k.ImageGCHighThresholdPercent, c.Edge.PodLogQuota,
		}
	}
	return reflect.DeepEqual(limits(a), limits(b))
}

// settingsTree returns a configuration as a decoded JSON tree. A setting has the same path in this tree as in the
// tables of fields.
func settingsTree(c *Config) (any, error) {
	data, err := json.Marshal(&settings{KubeletConfiguration: c.Kubelet, Edge: c.Edge})
	if err != nil {
		return nil, err
	}
	return decodeTree(data)
}

// nonEmpty returns v, or nil if v is any form of an empty value.
func nonEmpty(v any) any {
	switch t := v.(type) {
	case string:
		if t == "" || t == "0s" { // kubeadm writes 0s for each unset duration
			return nil
		}
	case []any:
		if len(t) == 0 {
			return nil
		}
	case map[string]any:
		if len(t) == 0 {
			return nil
		}
	}
	return v
}

// checkUpdates checks the settings of updates.
func (c *checker) checkUpdates(path *field.Path) {
	u := c.edge.Update
	c.checkSigners(path, u.Keys, u.Threshold)
	if (u.Archive != "" || u.Index != "") && len(u.Keys) == 0 {
		c.addRequired(path.Child("keys").String(), "the node follows an archive, but has no key to verify who signed it")
	}
	if u.Archive != "" && u.Index != "" {
		c.addInvalid(path.Child("index"), u.Index, "cannot be set together with archive, which would not wait for its ring")
	}
	for name, value := range map[string]string{"archive": u.Archive, "index": u.Index} {
		if value != "" && !strings.HasPrefix(value, "https://") && !strings.HasPrefix(value, "/") {
			c.addInvalid(path.Child(name), value, "must be an absolute path or an https URL")
		}
	}
	for i, text := range u.IndexKeys {
		if _, err := release.ParseKey(text); err != nil {
			c.addInvalid(path.Child("indexKeys").Index(i), text, "%v", err)
		}
	}
	if u.Every.Duration < time.Minute {
		c.addInvalid(path.Child("every"), u.Every.Duration.String(), "must be at least a minute")
	}
}

// checkSigners checks the keys of signers, and how many of them must have signed.
func (c *checker) checkSigners(path *field.Path, texts []string, threshold int32) {
	keys := map[string]bool{} // a repeated key counts once
	for i, text := range texts {
		k, err := release.ParseKey(text)
		if err != nil {
			c.addInvalid(path.Child("keys").Index(i), text, "%v", err)
			continue
		}
		keys[k.ID()] = true
	}
	if threshold < 1 || len(keys) > 0 && int(threshold) > len(keys) {
		c.addInvalid(path.Child("threshold"), threshold, "must be between 1 and the number of different keys, %d", len(keys))
	}
}

// checkBundles checks the settings of bundles.
func (c *checker) checkBundles(path *field.Path) {
	b := c.edge.Bundle
	c.checkSigners(path, b.Keys, b.Threshold)
	c.checkBundleSource(path.Child("source"), b.Source, len(b.Keys) > 0)
	if b.Every.Duration < 5*time.Second || b.Every.Duration > 30*24*time.Hour {
		c.addInvalid(path.Child("every"), b.Every.Duration.String(), "must be between 5s and 720h")
	}
	if b.Report != "" {
		c.checkURL(path.Child("report"), b.Report, "must be an https URL")
	}
	c.checkTrialTimes(path, b.HealthyFor.Duration, b.Deadline.Duration)
	c.checkMedium(path, b)
}

// maxLabel is the maximum length of the label of a file system. FAT has the shortest labels.
const maxLabel = 11

// checkMedium checks the settings of sticks.
func (c *checker) checkMedium(path *field.Path, b Bundles) {
	m, at := b.Medium, path.Child("medium")
	valid := func(r rune) bool { return r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' }
	if len(m.Label) > maxLabel || strings.ContainsFunc(m.Label, func(r rune) bool { return !valid(r) }) {
		c.addInvalid(at.Child("label"), m.Label, "must have at most %d characters: capital letters, digits, - and _", maxLabel)
	}
	if m.Label != "" && len(b.Keys) == 0 {
		c.addRequired(path.Child("keys").String(), "the node reads sticks, but has no key to verify who signed a bundle")
	}
	if m.Result && m.Label == "" {
		c.addRequired(at.Child("label").String(), "without a label, the node reads no sticks")
	}
	switch {
	case m.LED == "":
	case m.Label == "":
		c.addInvalid(at.Child("led"), m.LED, "without a label, the node reads no sticks")
	case m.LED == "." || m.LED == ".." || strings.ContainsAny(m.LED, "/\x00"):
		c.addInvalid(at.Child("led"), m.LED, "must be the name of an LED in /sys/class/leds")
	}
}

// checkBundleSource checks the bundle that the node follows.
func (c *checker) checkBundleSource(path *field.Path, source string, hasKeys bool) {
	ref, isRegistry := strings.CutPrefix(source, "oci://")
	switch {
	case source == "":
		return
	case !hasKeys:
		c.addInvalid(path, "...", "needs bundle.keys: the node accepts no bundle without the keys of its signers")
	case isRegistry:
		if podspec.CheckComplete(ref) != nil {
			if host, _, _ := strings.Cut(ref, "/"); strings.Contains(host, "@") { // it may contain a password
				source = "oci://..."
			}
			c.addInvalid(path, source, "must be a complete reference such as oci://registry.example.com/kiosk:stable")
		}
	default:
		c.checkURL(path, source, "must be an https URL, or begin with oci://")
	}
}

// checkURL checks a URL. The text says what is allowed.
func (c *checker) checkURL(path *field.Path, text, allowed string) {
	u, err := url.Parse(text)
	if err != nil {
		c.addInvalid(path, "...", "is not a valid URL")
		return
	}
	if download.CheckURL(u) != nil {
		if u.Scheme == "http" {
			allowed += ", or an http URL of this machine: localhost, 127.0.0.1 or [::1]"
		}
		c.addInvalid(path, download.Redact(u), "%s", allowed)
	}
}

// checkTrialTimes checks the durations of a trial.
func (c *checker) checkTrialTimes(path *field.Path, healthyFor, deadline time.Duration) {
	if healthyFor <= 0 {
		c.addInvalid(path.Child("healthyFor"), healthyFor.String(), "must be greater than 0")
	}
	if deadline <= healthyFor || deadline > time.Hour {
		c.addInvalid(path.Child("deadline"), deadline.String(), "must be greater than healthyFor (%s) and at most an hour", healthyFor)
	}
}

// checkFollowing checks the settings of dynamic configuration.
func (c *checker) checkFollowing(path *field.Path) {
	f := &c.edge.Configuration
	if f.ConfigMap != "" {
		if _, _, err := f.Object(); err != nil {
			c.addInvalid(path.Child("configMap"), f.ConfigMap, "%v", err)
		}
	}
	c.checkTrialTimes(path, f.HealthyFor.Duration, f.Deadline.Duration)
	for i, name := range f.Consent {
		if !IsBound(name) {
			c.addInvalid(path.Child("consent").Index(i), name, "is not a field that belongs to the node; see docs/configuration.md")
		}
	}
}

// Object returns the namespace and name of the ConfigMap.
func (f *Following) Object() (namespace, name string, err error) { return ConfigMapName(f.ConfigMap) }

// ConfigMapName splits namespace/name. A text without a slash is a name in kube-system.
func ConfigMapName(text string) (namespace, name string, err error) {
	namespace, name, both := strings.Cut(text, "/")
	if !both {
		namespace, name = "kube-system", text
	}
	if errs := validation.IsDNS1123Label(namespace); len(errs) > 0 {
		return "", "", fmt.Errorf("%q is not a namespace: %s", namespace, errs[0])
	}
	if errs := validation.IsDNS1123Subdomain(name); len(errs) > 0 {
		return "", "", fmt.Errorf("%q is not a name of a ConfigMap: %s", name, errs[0])
	}
	return namespace, name, nil
}

// These are the limits of a sent document: the memory of the parsed document in bytes, and the number of YAML aliases.
// The parser copies a part of the document for each alias.
const (
	maxSentMemory  = 32 << 20
	maxSentAliases = 8
)

// checkWeight returns an error for a sent document that would take too much memory.
func checkWeight(name string, doc []byte) error {
	if err := inputweight.YAML(doc, maxSentMemory); err != nil {
		return &FileError{File: name, Detail: err.Error()}
	}
	if n := inputweight.Aliases(doc); n > maxSentAliases {
		return &FileError{File: name, Detail: fmt.Sprintf("has %d aliases, but at most %d are allowed", n, maxSentAliases)}
	}
	return nil
}

// EdgeFields returns the fields that an EdgeConfiguration contains, without defaults. It returns none if the document is not valid.
func EdgeFields(data []byte) (e EdgeConfiguration) {
	if checkWeight("", data) != nil {
		return e
	}
	if _, err := decode("", data, EdgeAPIVersion, EdgeKind, &e); err != nil {
		return EdgeConfiguration{}
	}
	return e
}

// Split splits a file that contains a KubeletConfiguration, an EdgeConfiguration or both. Line
// numbers are preserved.
func Split(name string, data []byte) (kubeletDoc, edgeDoc []byte, err error) {
	if err := checkWeight(name, data); err != nil {
		return nil, nil, err
	}
	lines := strings.Split(string(data), "\n")
	from := 0
	for i := 0; i <= len(lines); i++ {
		if i < len(lines) && !strings.HasPrefix(lines[i], "---") {
			continue
		}
		text := strings.Repeat("\n", from) + strings.Join(lines[from:i], "\n") + "\n"
		from = i + 1
		if strings.TrimSpace(text) == "" {
			continue
		}
		doc, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			return nil, nil, yamlErrors(name, err)
		}
		var head struct{ Kind string }
		if err := json.Unmarshal(doc, &head); err != nil {
			return nil, nil, &FileError{File: name, Detail: "want documents with apiVersion and kind"}
		}
		switch {
		case string(doc) == "null":
		case head.Kind == kubeletKind && kubeletDoc == nil:
			kubeletDoc = []byte(text)
		case head.Kind == EdgeKind && edgeDoc == nil:
			edgeDoc = []byte(text)
		default:
			return nil, nil, &FileError{
				File: name, Line: lineOf([]byte(text), "kind"), Field: "kind",
				Detail: fmt.Sprintf("want one %s, one %s or both, have %q", kubeletKind, EdgeKind, head.Kind),
			}
		}
	}
	return kubeletDoc, edgeDoc, nil
}
