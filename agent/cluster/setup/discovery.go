package setup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/islet-edge/islet/internal/durable"
	"github.com/islet-edge/islet/internal/inputweight"
	"github.com/islet-edge/islet/internal/retry"
)

// A discovery is what the node needs to obtain the CA of its cluster. The node sends two requests. The first one accepts any server, and
// only takes a CA with the hash from the answer. The hash covers nothing but the public key of the CA, so a stranger can make a CA
// certificate with this hash and other names, dates and constraints. The second request therefore accepts only a server whose certificate
// that CA has signed. Its answer has the CA of the cluster.
// https://kubernetes.io/docs/reference/setup-tools/kubeadm/kubeadm-join/#token-based-discovery-with-ca-pinning
type discovery struct {
	Server string `json:"server"`
	Hash   string `json:"hash"`
	Token  string `json:"token"`
	Dir    string `json:"dir"` // of the configuration
}

const (
	answerTime    = 30 * time.Second
	maxAnswer     = 1 << 20 // bytes
	maxAnswerSize = 8 << 20 // memory of the decoded answer
	// clusterInfo is the path of a ConfigMap. In a cluster of kubeadm, everybody may read it.
	clusterInfo = "/api/v1/namespaces/kube-public/configmaps/cluster-info"
)

// discover writes the CA of the cluster and the bootstrap kubeconfig, if the record has a discovery. It tries again until ctx ends.
func (w *watch) discover(ctx context.Context) error {
	d := w.r.Discovery
	if d == nil {
		return nil
	}
	backoff := retry.Backoff{FirstWindow: 2 * time.Second, SecondWindow: 20 * time.Second, MaxWindow: 5 * time.Minute}
	said := ""
	for {
		ca, err := d.fetch(ctx, w.Link.Now)
		if err == nil {
			err = w.update(func(r *record) error { r.Discovery = nil; return d.write(ca) })
		}
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if text := shorten(err.Error()); text != said {
			said = text
			w.Log.Warn("cannot obtain the CA of the cluster", "server", d.Server, "error", text)
		}
		w.report(err.Error())
		if _, err := backoff.Wait(ctx, 0, nil); err != nil {
			return err
		}
	}
}

func (d *discovery) write(ca []byte) error {
	err := durable.Write(filepath.Join(d.Dir, authorityFile), ca, 0o600)
	if err == nil { // the agent reads the bootstrap kubeconfig as soon as it is there
		text := kubeconfig(d.Server, string(ca), tokenUser(d.Token))
		err = durable.Write(filepath.Join(d.Dir, bootstrapFile), text, 0o600)
	}
	return err
}

// fetch returns the CA of the cluster in PEM. The parameter now is a clock, which returns the best known time.
func (d *discovery) fetch(ctx context.Context, now func() time.Time) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	ca, begins, err := d.get(ctx, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12})
	if err != nil {
		return nil, err
	}
	pool, at := x509.NewCertPool(), now()
	pool.AppendCertsFromPEM(ca)
	if begins.After(at) { // the board has no clock; the link sets its time in the same way
		at = begins
	}
	ca, _, err = d.get(ctx, &tls.Config{RootCAs: pool, Time: func() time.Time { return at }, MinVersion: tls.VersionTLS12})
	return ca, err
}

// get requests cluster-info. It returns the CA with the hash in PEM, and the time from which the server's own certificate is valid.
func (d *discovery) get(ctx context.Context, c *tls.Config) (ca []byte, begins time.Time, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(d.Server, "/")+clusterInfo, nil)
	if err != nil {
		return nil, begins, err
	}
	request.Header.Set("Accept", "application/json")
	transport := &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		TLSClientConfig:        c,
		DisableKeepAlives:      true,
		MaxResponseHeaderBytes: 64 << 10,
	}
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	client := &http.Client{Transport: transport, CheckRedirect: stay}
	response, err := client.Do(request)
	if err != nil {
		return nil, begins, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, begins, fmt.Errorf("the ConfigMap kube-public/cluster-info: the server answers %d", response.StatusCode)
	}
	data, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err == nil && len(data) > maxAnswer {
		err = fmt.Errorf("the answer has more than %d bytes", maxAnswer)
	}
	if err != nil {
		return nil, begins, err
	}
	ca, err = d.authority(data)
	return ca, response.TLS.PeerCertificates[0].NotBefore, err
}

// authority returns, in PEM, the certificates in the answer whose public key has the hash.
func (d *discovery) authority(answer []byte) ([]byte, error) {
	want, err := parseHash(d.Hash)
	if err != nil {
		return nil, err
	}
	var object struct {
		Data struct {
			Kubeconfig string `json:"kubeconfig"`
		} `json:"data"`
	}
	if err := inputweight.JSON(answer, &object, maxAnswerSize); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(answer, &object); err != nil {
		return nil, fmt.Errorf("the server is not an API server: %w", err)
	}
	text := []byte(object.Data.Kubeconfig)
	if err := inputweight.YAML(text, maxAnswerSize); err != nil {
		return nil, err
	}
	if inputweight.Aliases(text) > 0 {
		return nil, errors.New("the kubeconfig of the server has aliases")
	}
	var info struct {
		Clusters []struct {
			Cluster struct {
				CA []byte `json:"certificate-authority-data"`
			} `json:"cluster"`
		} `json:"clusters"`
	}
	if err := yaml.Unmarshal(text, &info); err != nil {
		return nil, fmt.Errorf("the kubeconfig of the server: %w", err)
	}
	var found bytes.Buffer
	for _, c := range info.Clusters {
		if err := inputweight.PEM(maxPEM, string(c.Cluster.CA)); err != nil {
			return nil, err
		}
		list, err := authorities(c.Cluster.CA)
		if err != nil {
			continue
		}
		for _, cert := range list {
			if has := sha256.Sum256(cert.RawSubjectPublicKeyInfo); bytes.Equal(has[:], want) {
				if err := pem.Encode(&found, &pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}); err != nil {
					return nil, err
				}
			}
		}
	}
	if found.Len() == 0 {
		return nil, errors.New("the server has no CA with the hash of cluster.caHash: it is another cluster, or another server answers")
	}
	return found.Bytes(), nil
}
