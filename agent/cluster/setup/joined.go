package setup

import (
	"maps"
	"path/filepath"
	"slices"

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

// joinedFields returns the fields of a configuration in /etc/islet which the command islet join sets. Without the fields of the result
// bound, the node would lose its cluster. A file next to islet.yaml may replace the fields of the result free.
func joinedFields(text []byte, isEdge bool) (bound, free map[string]any) {
	bound, free = map[string]any{}, map[string]any{}
	set := func(to map[string]any, field, value string) {
		if value != "" {
			to[field] = value
		}
	}
	if isEdge {
		set(bound, "k3s.directory", string(k3sDirectory(text)))
		return bound, free
	}
	var k kubelet.KubeletConfiguration
	if config.Decode(kubeletFile, text, kubelet.SchemeGroupVersion.String(), "KubeletConfiguration", &k) != nil {
		return bound, free
	}
	set(bound, "tlsCertFile", k.TLSCertFile)
	set(bound, "tlsPrivateKeyFile", k.TLSPrivateKeyFile)
	set(bound, "authentication.x509.clientCAFile", k.Authentication.X509.ClientCAFile)
	bound["rotateCertificates"], bound["serverTLSBootstrap"] = k.RotateCertificates, k.ServerTLSBootstrap
	set(free, "clusterDomain", k.ClusterDomain)
	if len(k.ClusterDNS) > 0 {
		free["clusterDNS"] = k.ClusterDNS
	}
	return bound, free
}

// keepJoined adds to a configuration, which replaces the one in base, the fields that the command islet join has set. If the configuration
// has another value for one of them, keepJoined adds a mistake, or keeps that value if it may differ.
func (p *plan) keepJoined(f *part, text, base []byte) ([]byte, error) {
	bound, free := joinedFields(base, f.edge)
	same, _, err := config.SetFields(f.origin, text, f.edge, nil)
	for _, fields := range []map[string]any{bound, free} {
		for _, field := range slices.Sorted(maps.Keys(fields)) {
			if err != nil {
				return nil, err
			}
			var with []byte
			var had []string
			with, had, err = config.SetFields(f.origin, same, f.edge, map[string]any{field: fields[field]})
			switch _, isFree := free[field]; {
			case len(had) == 0:
				same = with
			case !isFree && string(with) != string(same):
				p.errs = append(p.errs, config.NewFileError(p.s.path, p.s.data, f.field, "%s has another value for %s: this board has "+
					"joined %s by islet join, and needs %v", f.beside, field, p.joined.APIServer, fields[field]))
			}
		}
	}
	return same, err
}
