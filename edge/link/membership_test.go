package link

import (
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/islet-edge/islet/edge/kube/kubetest"
)

// TestMembership checks that the name of a node comes only from the certificate of a node. An image may contain the kubeconfig of an
// administrator, which does not name the node.
func TestMembership(t *testing.T) {
	ca := kubetest.NewCA(t)
	for user, want := range map[string]string{"system:node:kiosk": "kiosk", "kubernetes-admin": "", "system:nodes": "", "": ""} {
		cfg := api.NewConfig()
		cfg.CurrentContext = "c"
		cfg.Contexts["c"] = &api.Context{Cluster: "k", AuthInfo: "u"}
		cfg.Clusters["k"] = &api.Cluster{Server: "https://192.0.2.1:6443"}
		cfg.AuthInfos["u"] = &api.AuthInfo{Token: "of nobody"}
		if user != "" {
			cert, key := ca.Client(t, user, nil, time.Now(), time.Now().Add(time.Hour))
			cfg.AuthInfos["u"] = &api.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}
		}
		path := filepath.Join(t.TempDir(), "kubeconfig")
		if err := clientcmd.WriteToFile(*cfg, path); err != nil {
			t.Fatal(err)
		}
		server, node, err := Membership(path)
		if err != nil || server != "https://192.0.2.1:6443" || node != want {
			t.Errorf("%q: server %q, node %q, %v", user, server, node, err)
		}
	}
}
