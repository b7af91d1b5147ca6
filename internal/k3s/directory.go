package k3s

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/islet-edge/islet/internal/durable"
	"github.com/islet-edge/islet/internal/regular"
)

// Names of the files in a Directory.
const (
	recordFile     = "cluster.json"
	clientCAFile   = "client-ca.crt"
	serverCAFile   = "server-ca.crt"
	kubeconfigFile = "kubelet.kubeconfig"
	tokenFile      = "token"
)

const (
	// maxFile is the maximum size of a file in bytes.
	maxFile = 1 << 20
	// maxPassword is the maximum length of a node's password.
	maxPassword = 256
)

// DefaultPasswordFile is the file with the node's password, which an agent of k3s uses too. The server keeps a hash of the first password
// that it gets, and refuses every other one for the same name.
const DefaultPasswordFile = "/etc/rancher/node/password"

// IsFile reports whether a Directory keeps a file with this name.
func IsFile(name string) bool {
	switch name {
	case recordFile, clientCAFile, serverCAFile, kubeconfigFile, tokenFile, string(ForClient) + ".pem", string(ForServing) + ".pem":
		return true
	}
	return false
}

// A Directory contains what a node keeps of a cluster: addresses, certificates and a kubeconfig. Each certificate and its key are one file,
// so a power cut leaves either the old or the new pair.
type Directory string

// A Record has the facts of a join that the certificates do not have.
type Record struct {
	Server       string `json:"server"`    // URL of the supervisor
	APIServer    string `json:"apiServer"` // URL of the API server
	Node         string `json:"node"`
	PasswordFile string `json:"passwordFile"`
}

// PairFile returns the path of a certificate with its key.
func (d Directory) PairFile(use Purpose) string { return filepath.Join(string(d), string(use)+".pem") }

// ClientCA returns the path of the CA of clients.
func (d Directory) ClientCA() string { return filepath.Join(string(d), clientCAFile) }

// ServerCA returns the path of the CA of servers.
func (d Directory) ServerCA() string { return filepath.Join(string(d), serverCAFile) }

// Kubeconfig returns the path of the kubeconfig.
func (d Directory) Kubeconfig() string { return filepath.Join(string(d), kubeconfigFile) }

// Record reads the record.
func (d Directory) Record() (*Record, error) {
	data, err := regular.Read(filepath.Join(string(d), recordFile), maxFile)
	if err != nil {
		return nil, err
	}
	r := &Record{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(string(d), recordFile), err)
	}
	return r, nil
}

// Pair reads a certificate with its key, and returns the time at which it was written.
func (d Directory) Pair(use Purpose) (*Pair, time.Time, error) {
	file := d.PairFile(use)
	text, err := regular.Read(file, maxFile)
	if err != nil {
		return nil, time.Time{}, err
	}
	p, err := ParsePair(text)
	if err != nil {
		return nil, time.Time{}, fmt.Errorf("%s: %w", file, err)
	}
	info, err := os.Stat(file)
	if err != nil {
		return nil, time.Time{}, err
	}
	return p, info.ModTime(), nil
}

// Token reads the token. A node keeps it only if its user has wanted that. Without a token, the result is empty.
func (d Directory) Token() (Token, error) {
	text, err := regular.Read(filepath.Join(string(d), tokenFile), MaxToken)
	if errors.Is(err, fs.ErrNotExist) {
		return Token{}, nil
	}
	if err != nil {
		return Token{}, err
	}
	return ParseToken(string(text))
}

// A Cluster is the content of a Directory.
type Cluster struct {
	Record             Record
	Client, Serving    *Pair
	ClientCA, ServerCA []byte
	Token              string // empty if the node does not keep it
}

// files returns the content of each file, by its name.
func (c *Cluster) files() (map[string][]byte, error) {
	record, err := json.MarshalIndent(c.Record, "", "  ")
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{
		recordFile: append(record, '\n'), clientCAFile: c.ClientCA, serverCAFile: c.ServerCA,
		string(ForClient) + ".pem": c.Client.PEM, string(ForServing) + ".pem": c.Serving.PEM,
		kubeconfigFile: kubeconfig(c.Record.APIServer),
	}
	if c.Token != "" {
		files[tokenFile] = []byte(c.Token + "\n")
	}
	return files, nil
}

// kubeconfig returns a kubeconfig whose paths are relative to its directory.
func kubeconfig(server string) []byte {
	client := string(ForClient) + ".pem"
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters:
- name: k3s
  cluster:
    server: %q
    certificate-authority: %s
users:
- name: node
  user:
    client-certificate: %s
    client-key: %s
contexts:
- name: k3s
  context: {cluster: k3s, user: node}
current-context: k3s
`, server, serverCAFile, client, client)
}

// makeDirectories durably creates a directory and its missing parents.
func makeDirectories(dir string, mode fs.FileMode) error {
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(dir)
	if err := makeDirectories(parent, 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(dir, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return durable.SyncDir(parent)
}

// ReadPassword reads the node's password.
func ReadPassword(file string) (string, error) {
	text, err := regular.Read(file, maxPassword)
	if err != nil {
		return "", err
	}
	password := strings.TrimSpace(string(text))
	if password == "" || strings.ContainsFunc(password, func(r rune) bool { return r < ' ' || r > '~' }) {
		return "", fmt.Errorf("%s is not a password of a node: want one line of printable characters", file)
	}
	return password, nil
}

// EnsurePassword returns the node's password. If there is none, it durably stores a new one, because the server remembers the password.
func EnsurePassword(file string) (string, error) {
	password, err := ReadPassword(file)
	if !errors.Is(err, fs.ErrNotExist) {
		return password, err
	}
	random := make([]byte, 16)
	if _, err := rand.Read(random); err != nil {
		return "", err
	}
	password = hex.EncodeToString(random)
	if err := makeDirectories(filepath.Dir(file), 0o755); err != nil {
		return "", err
	}
	if err := durable.Write(file, []byte(password+"\n"), 0o600); err != nil {
		return "", err
	}
	return ReadPassword(file) // another command may have written it too
}
