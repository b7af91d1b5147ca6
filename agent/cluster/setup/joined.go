package setup

import (
	"path/filepath"
	"reflect"

	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/k3s"
	"github.com/islet-edge/islet/internal/regular"
)

// joinedK3s returns the directory of the k3s cluster that the board has joined by the command islet join, and what is known of it. The
// directory is empty if there is none. A cluster of islet.yaml is stronger, as its flags are for the agent.
func (s *Setup) joinedK3s(r *record) (k3s.Directory, *k3s.Record) {
	data, err := regular.Read(filepath.Join(s.Dir, edgeFile), maxBeside)
	if err != nil || r.Server != "" {
		return "", nil
	}
	d := k3sDirectory(data)
	if d == "" {
		return "", nil
	}
	m, err := d.Record()
	if err != nil || m.APIServer == "" {
		return "", nil
	}
	return d, m
}

// k3sDirectory returns the directory of the k3s cluster in an EdgeConfiguration. It is empty if there is none, or if there is a mistake.
func k3sDirectory(edge []byte) k3s.Directory {
	var e config.EdgeConfiguration
	if config.Decode(edgeFile, edge, config.EdgeAPIVersion, config.EdgeKind, &e) != nil {
		return ""
	}
	return k3s.Directory(e.K3s.Directory)
}

// A joinedField is a field of a configuration that the command islet join sets.
type joinedField struct {
	name   string
	value  any
	isFree bool // a file next to islet.yaml may set it. Without the others, the node would lose its cluster
}

// joinedFields returns the fields of a configuration in /etc/islet that the command islet join sets, with their values there.
func joinedFields(text []byte, isEdge bool) []joinedField {
	if isEdge {
		return []joinedField{{"k3s.directory", string(k3sDirectory(text)), false}}
	}
	var k kubelet.KubeletConfiguration
	if config.Decode(kubeletFile, text, "kubelet.config.k8s.io/v1beta1", "KubeletConfiguration", &k) != nil {
		return nil
	}
	return []joinedField{
		{"tlsCertFile", k.TLSCertFile, false}, {"tlsPrivateKeyFile", k.TLSPrivateKeyFile, false},
		{"authentication.x509.clientCAFile", k.Authentication.X509.ClientCAFile, false},
		{"rotateCertificates", k.RotateCertificates, false}, {"serverTLSBootstrap", k.ServerTLSBootstrap, false},
		{"clusterDomain", k.ClusterDomain, true}, {"clusterDNS", k.ClusterDNS, true},
	}
}

// keepJoined adds to a configuration, which replaces the one in base, the fields that the command islet join has set. If the configuration
// has another value for one of them, keepJoined adds a mistake, or keeps that value if it may differ.
func (p *plan) keepJoined(f *part, text, base []byte) ([]byte, error) {
	out, _, err := config.SetFields(f.origin, text, f.edge, nil)
	for _, j := range joinedFields(base, f.edge) {
		if v := reflect.ValueOf(j.value); v.Kind() != reflect.Bool && v.Len() == 0 { // base does not have it
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
