package setup

import (
	"bytes"
	"path/filepath"
	"reflect"

	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/k3s"
	"github.com/islet-edge/islet/internal/regular"
)

// joinedK3s returns the directory of the k3s cluster that the board has joined by the command islet join, and what is known of it. The
// directory is empty if there is none, or if the board has a cluster of islet.yaml, whose flags override edge.yaml. If edge.yaml has a
// mistake, joinedK3s returns the directory in which islet join stores the cluster.
func (s *Setup) joinedK3s(r *record) (k3s.Directory, *k3s.Record) {
	data, err := regular.Read(filepath.Join(s.Dir, edgeFile), maxBeside)
	if err != nil || r.Server != "" {
		return "", nil
	}
	d, err := k3sDirectory(data)
	if err != nil {
		d = k3s.Current(k3s.Root(s.State))
	}
	if d == "" {
		return "", nil
	}
	m, err := d.Record()
	if err != nil || m.APIServer == "" {
		return "", nil
	}
	return d, m
}

// k3sDirectory returns the directory of the k3s cluster in an EdgeConfiguration, or "" if there is none.
func k3sDirectory(edge []byte) (k3s.Directory, error) {
	if len(bytes.TrimSpace(edge)) == 0 {
		return "", nil
	}
	var e config.EdgeConfiguration
	err := config.Decode(edgeFile, edge, config.EdgeAPIVersion, config.EdgeKind, &e)
	return k3s.Directory(e.K3s.Directory), err
}

// A joinedField is a field of a configuration that the command islet join sets.
type joinedField struct {
	name   string
	value  any
	isFree bool // a file next to islet.yaml may set another value; for the other fields, the node would then lose its cluster
}

// joinedFields returns the fields of a configuration in /etc/islet that the command islet join sets, with their values there.
func joinedFields(text []byte, isEdge bool) ([]joinedField, error) {
	if isEdge {
		d, err := k3sDirectory(text)
		return []joinedField{{"k3s.directory", string(d), false}}, err
	}
	var k kubelet.KubeletConfiguration
	if len(bytes.TrimSpace(text)) > 0 {
		if err := config.Decode(kubeletFile, text, "kubelet.config.k8s.io/v1beta1", "KubeletConfiguration", &k); err != nil {
			return nil, err
		}
	}
	return []joinedField{
		{"tlsCertFile", k.TLSCertFile, false}, {"tlsPrivateKeyFile", k.TLSPrivateKeyFile, false},
		{"authentication.x509.clientCAFile", k.Authentication.X509.ClientCAFile, false},
		{"rotateCertificates", k.RotateCertificates, false}, {"serverTLSBootstrap", k.ServerTLSBootstrap, false},
		{"clusterDomain", k.ClusterDomain, true}, {"clusterDNS", k.ClusterDNS, true},
		{"failSwapOn", k.FailSwapOn, true},
	}, nil
}

// keepJoined copies the fields that the command islet join has set from base to text, the configuration that replaces base. If text has
// another value for such a field, keepJoined keeps that value if it may differ, and otherwise adds a mistake. It returns an error if base
// cannot be decoded, because the node would lose its cluster without these fields.
func (p *plan) keepJoined(f *part, text, base []byte) ([]byte, error) {
	fields, err := joinedFields(base, f.edge)
	if err != nil {
		return nil, config.NewFileError(p.s.path, p.s.data, f.field, "%s has the settings of islet join, and cannot be replaced "+
			"while it has a mistake: %v", filepath.Join(p.dir, f.name), err)
	}
	out, _, err := config.SetFields(f.origin, text, f.edge, nil)
	for _, j := range fields {
		// Without a value in base, there is nothing to keep.
		if v := reflect.ValueOf(j.value); v.Kind() != reflect.Bool && (v.IsZero() || v.Kind() == reflect.Slice && v.Len() == 0) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var with []byte
		var had []string
		with, had, err = config.SetFields(f.origin, out, f.edge, map[string]any{j.name: j.value})
		switch {
		case len(had) == 0:
			out = with
		case !j.isFree && string(with) != string(out):
			p.errs = append(p.errs, config.NewFileError(p.s.path, p.s.data, f.field, "%s has another value for %s: this board has "+
				"joined %s by islet join, and needs %v", f.beside, j.name, p.joined.APIServer, j.value))
		}
	}
	return out, err
}
