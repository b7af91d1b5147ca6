package setup

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/k3s"
	"github.com/islet-edge/islet/internal/regular"
)

// Names of the files in the directory of the configuration.
const (
	kubeletFile    = "kubelet.yaml"
	edgeFile       = "edge.yaml"
	authorityFile  = "ca.crt"
	bootstrapFile  = "bootstrap.kubeconfig"
	kubeconfigFile = "kubeconfig"
)

// The first line that addFlags writes begins with blockBegin and ends with blockEnd.
const (
	blockBegin = "# From "
	blockEnd   = ", by islet setup. Change that file instead."
)

// A plan has the files that an islet.yaml makes.
type plan struct {
	s    *source
	dir  string // of the configuration, /etc/islet
	old  *record
	name string // of the node
	// joined is the k3s cluster that the board has joined by the command islet join, or nil.
	joined *k3s.Record
	errs   []error

	targets []target
	made    map[string]made
	beside  map[string]string // as record.Beside
}

// newPlan returns the files for a source that was checked. It writes nothing. Its errors name the file and the field.
func newPlan(s *source, dir, name string, old *record, joined *k3s.Record) (*plan, error) {
	p := &plan{s: s, dir: dir, old: old, name: name, joined: joined, made: map[string]made{}, beside: map[string]string{}}
	if err := p.addSettings(); err != nil {
		return nil, err
	}
	flags := p.addCredentials()
	if name != "" {
		flags = append(flags, "--hostname-override="+name)
	}
	if err := p.addFlags(flags); err != nil {
		return nil, err
	}
	return p, errors.Join(p.errs...)
}

// base returns the content that a file had before this package wrote it, and its current content. Both are nil if the file does not exist.
func (p *plan) base(path string) (data, current []byte, err error) {
	current, err = regular.Read(path, maxBeside)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if m, ok := p.old.Made[path]; ok && sum(current) == m.Sum {
		return m.Base, current, err
	}
	if path == filepath.Join(p.dir, config.FlagsFile) {
		return p.withoutBlock(current), current, err
	}
	return current, current, err
}

// withoutBlock returns the contents of the file of flags without the lines that addFlags has written, also if a person has edited them or
// has written comments between them. It keeps flags that name files which islet setup did not write. If no line is left, it returns nil.
func (p *plan) withoutBlock(text []byte) []byte {
	if !bytes.Contains(text, []byte(blockEnd)) {
		return text
	}
	var rest []byte
	inBlock := false
	for line := range bytes.Lines(text) {
		is := bytes.TrimSpace(line)
		if bytes.HasPrefix(is, []byte(blockBegin)) && bytes.HasSuffix(is, []byte(blockEnd)) {
			inBlock = true
			continue
		}
		isComment := len(is) == 0 || is[0] == '#'
		inBlock = inBlock && (isComment || p.isMadeFlag(string(is)))
		if !inBlock || isComment {
			rest = append(rest, line...)
		}
	}
	return rest
}

// isMadeFlag reports whether a line is a flag that addFlags writes. Its host name may have been edited.
func (p *plan) isMadeFlag(line string) bool {
	return line == "--kubeconfig="+filepath.Join(p.dir, kubeconfigFile) ||
		line == "--bootstrap-kubeconfig="+filepath.Join(p.dir, bootstrapFile) || config.HasFlag([]string{line}, "--hostname-override")
}

// add adds a target with a base. If data is nil, the target restores the base.
func (p *plan) add(path string, data, base, current []byte) {
	if data == nil {
		data = base
	} else {
		p.made[path] = made{sum(data), base}
	}
	if data != nil && string(data) == string(current) || data == nil && current == nil {
		return
	}
	p.targets = append(p.targets, target{path, data, data == nil})
}

func (p *plan) write(name string, data []byte) {
	p.targets = append(p.targets, target{Path: filepath.Join(p.dir, name), Data: data})
}

func (p *plan) remove(name string) {
	p.targets = append(p.targets, target{Path: filepath.Join(p.dir, name), Remove: true})
}

// addSettings adds the KubeletConfiguration and the EdgeConfiguration, and checks both.
func (p *plan) addSettings() error {
	b := &p.s.board
	kube, edge := map[string]any{}, map[string]any{}
	n := b.Network
	if n.PodCIDR != "" {
		kube["podCIDR"] = n.PodCIDR
	}
	if len(n.ClusterDNS) > 0 {
		kube["clusterDNS"] = n.ClusterDNS
	}
	if n.ClusterDomain != "" {
		kube["clusterDomain"] = n.ClusterDomain
	}
	if b.Bundle != nil {
		edge["bundle"] = b.Bundle
	}
	if b.Update != nil {
		edge["update"] = b.Update
	}
	parts := []part{
		{name: kubeletFile, beside: b.KubeletConfiguration, field: "kubeletConfiguration", fields: kube},
		{name: edgeFile, beside: b.EdgeConfiguration, field: "edgeConfiguration", fields: edge, edge: true},
	}
	for i := range parts {
		if err := p.merge(&parts[i]); err != nil {
			return err
		}
	}
	p.check(parts)
	return nil
}

// A part is one of the two configurations.
type part struct {
	name   string         // of the file
	beside string         // the name of a file next to islet.yaml; may be empty
	field  string         // of islet.yaml, with the name of that file
	fields map[string]any // the settings of islet.yaml
	edge   bool

	origin string // the file with the other settings
	text   []byte // all settings; nil if there are none
}

// merge adds the settings of islet.yaml to the settings of the file next to it or, without such a file, to the settings of the base.
func (p *plan) merge(f *part) error {
	path := filepath.Join(p.dir, f.name)
	base, current, err := p.base(path)
	if err != nil {
		return err
	}
	other := base
	f.origin = path
	if f.beside != "" {
		f.origin = filepath.Join(filepath.Dir(p.s.path), f.beside)
		if other, err = readFile(f.origin, maxBeside); err != nil {
			p.errs = append(p.errs, config.NewFileError(p.s.path, p.s.data, f.field, "%v", err))
			return nil
		}
		p.beside[f.beside] = sum(other)
	}
	if len(f.fields) == 0 && f.beside == "" && (f.edge || p.s.board.Cluster == nil) {
		f.text = base
		p.add(path, nil, base, current)
		return nil
	}
	text, had, err := config.SetFields(f.origin, other, f.edge, f.fields)
	if err == nil && f.beside != "" {
		for _, field := range had {
			p.errs = append(p.errs, config.NewFileError(p.s.path, p.s.data, fieldHere(field), "is also set in %s", f.beside))
		}
	}
	if err == nil && f.beside != "" && p.joined != nil {
		text, err = p.keepJoined(f, text, base)
	}
	if err == nil && !f.edge && p.s.board.Cluster != nil {
		text, err = p.addDefaults(f.origin, text)
	}
	if err != nil {
		p.errs = append(p.errs, err)
		return nil
	}
	f.text = text
	p.add(path, text, base, current)
	return nil
}

// addDefaults adds the settings that a flashed board needs in a cluster to a KubeletConfiguration, unless the configuration has them.
func (p *plan) addDefaults(origin string, text []byte) ([]byte, error) {
	for field, value := range map[string]any{
		// The cluster calls the node with certificates of its CA.
		"authentication.x509.clientCAFile": filepath.Join(p.dir, authorityFile),
		// Otherwise the node leaves the cluster when its certificate expires.
		"rotateCertificates": true,
		// Otherwise the agent does not start on a board with swap, and Raspberry Pi OS turns swap on.
		"failSwapOn": false,
	} {
		with, had, err := config.SetFields(origin, text, false, map[string]any{field: value})
		if err != nil {
			return nil, err
		}
		if len(had) == 0 {
			text = with
		}
	}
	return text, nil
}

// check checks the configurations, each one and both together. A mistake names the file and the field that the user has written.
func (p *plan) check(parts []part) {
	var all []byte
	for _, f := range parts {
		if len(p.errs) == 0 && f.text != nil {
			p.addMistakes(f.origin, f.text, parts)
		}
		all = append(append(all, f.text...), "\n---\n"...)
	}
	if len(p.errs) == 0 {
		p.addMistakes(parts[0].origin+" with "+parts[1].origin, all, parts)
	}
}

func (p *plan) addMistakes(origin string, text []byte, parts []part) {
	_, mistakes, _ := config.Check(origin, text)
	for _, m := range mistakes {
		m.File, m.Line = origin, 0
		if field, detail, ok := strings.Cut(m.Detail, ": "); ok && m.Field == "" && !strings.Contains(field, " ") {
			m.Field, m.Detail = field, detail
		}
		for _, f := range parts {
			for field := range f.fields {
				if m.Field == field || strings.HasPrefix(m.Field, field+".") || strings.HasPrefix(m.Field, field+"[") {
					m = *config.NewFileError(p.s.path, p.s.data, fieldHere(m.Field), "%s", m.Detail)
				}
			}
		}
		p.errs = append(p.errs, &m)
	}
}

// fieldHere returns the field of islet.yaml that sets a field of the configuration.
func fieldHere(field string) string {
	for _, name := range []string{"podCIDR", "clusterDNS", "clusterDomain"} {
		if strings.HasPrefix(field, name) {
			return "network." + field
		}
	}
	return field
}

// addCredentials adds the files of the cluster and returns the flags that name them.
func (p *plan) addCredentials() (flags []string) {
	c := p.s.board.Cluster
	if p.old.Server != "" && (c == nil || c.Token == "") { // bootstrapFile has the token of the former file
		p.remove(bootstrapFile)
	}
	if c == nil {
		if p.old.OwnKubeconfig && !p.old.Joined {
			p.remove(kubeconfigFile)
		}
		return nil
	}
	path := func(name string) string { return filepath.Join(p.dir, name) }
	flags = append(flags, "--kubeconfig="+path(kubeconfigFile))
	if c.CA != "" {
		p.write(authorityFile, []byte(c.CA))
	}
	if c.Token != "" {
		flags = append(flags, "--bootstrap-kubeconfig="+path(bootstrapFile))
	}
	if p.s.tokenRemoved { // the files exist since the token was used
		return flags
	}
	if c.Token != "" && p.old.OwnKubeconfig { // the agent replaces it with one with its own certificate
		p.remove(kubeconfigFile)
	}
	if c.CAHash != "" && (p.old.Server != c.Server || p.old.CA != c.CAHash) { // the present files may be of another cluster
		p.remove(bootstrapFile)
		p.remove(authorityFile)
	}
	switch {
	case c.Token != "" && c.CA != "":
		p.write(bootstrapFile, kubeconfig(c.Server, c.CA, tokenUser(c.Token)))
	case c.Token == "":
		user := "    client-certificate-data: " + encode(c.Certificate) + "\n    client-key-data: " + encode(c.Key)
		p.write(kubeconfigFile, kubeconfig(c.Server, c.CA, user))
	}
	return flags
}

// addFlags adds the file with the flags, after those that were there before.
func (p *plan) addFlags(flags []string) error {
	path := filepath.Join(p.dir, config.FlagsFile)
	base, current, err := p.base(path)
	if err != nil {
		return err
	}
	if len(flags) == 0 {
		p.add(path, nil, base, current)
		return nil
	}
	text := string(base)
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	text += fmt.Sprintf("%s%s%s\n%s\n", blockBegin, p.s.path, blockEnd, strings.Join(flags, "\n"))
	p.add(path, []byte(text), base, current)
	return nil
}

// kubeconfig returns a kubeconfig with one user, whose credentials are lines such as token: TOKEN.
func kubeconfig(server, ca, user string) []byte {
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters:
- name: islet
  cluster:
    server: %q
    certificate-authority-data: %s
users:
- name: islet
  user:
%s
contexts:
- name: islet
  context: {cluster: islet, user: islet}
current-context: islet
`, server, encode(ca), user)
}

func encode(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

// tokenUser returns the credentials of a bootstrap token.
func tokenUser(token string) string { return "    token: " + token }
