package migrate

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// A mirror is the entry of a registry in k3s' registries.yaml and in older configurations of containerd.
type mirror struct {
	Endpoints []string          `json:"endpoint" toml:"endpoint"`
	Rewrites  map[string]string `json:"rewrite" toml:"rewrite"`
}

// A registryConfig is the TLS and the login of a server, in the same files.
type registryConfig struct {
	Auth *struct {
		Username      string `json:"username" toml:"username"`
		Password      string `json:"password" toml:"password"`
		Auth          string `json:"auth" toml:"auth"`
		Token         string `json:"token" toml:"-"`
		IdentityToken string `json:"identity_token" toml:"identitytoken"`
	} `json:"auth" toml:"auth"`
	TLS *struct {
		CA       string `json:"ca_file" toml:"ca_file"`
		Cert     string `json:"cert_file" toml:"cert_file"`
		Key      string `json:"key_file" toml:"key_file"`
		Insecure bool   `json:"insecure_skip_verify" toml:"insecure_skip_verify"`
	} `json:"tls" toml:"tls"`
}

// registries are the settings of all programs of the host.
type registries struct {
	k3sFile   string // --private-registry of k3s
	noDefault bool   // --disable-default-registry-endpoint of k3s
	hosts     map[string]*registry
	logins    map[string]string // "auth" of docker's config.json, by registry
	from      []string          // the files with logins
	notes     []Note
}

//go:noinline
func (r *registries) differ(file, key, what string) {
	if n := (Note{file, key, what}); !slices.Contains(r.notes, n) {
		r.notes = append(r.notes, n)
	}
}

// maxHostName is the maximum length of a registry's name.
const maxHostName = 253

// host returns the registry of a name. It returns nil if the name cannot be the name of a folder.
func (r *registries) host(file, key, name string) *registry {
	if name == "*" {
		name = "_default"
	}
	valid := name != "" && len(name) <= maxHostName && strings.Trim(name, ".") != "" && !strings.ContainsFunc(name, func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune(".-_:[]", c))
	})
	if !valid {
		r.differ(file, key, strconv.Quote(name)+" is not the name of a registry: the entry is not translated")
		return nil
	}
	if r.hosts == nil {
		r.hosts = map[string]*registry{}
	}
	if r.hosts[name] == nil {
		r.hosts[name] = &registry{}
	}
	if h := r.hosts[name]; !slices.Contains(h.from, file) {
		h.from = add(h.from, file)
	}
	return r.hosts[name]
}

// parse returns the URL of an endpoint without a trailing slash. It returns "" and adds a note if the text is not valid.
func (r *registries) parse(file, key, text string) string {
	if !strings.Contains(text, "://") {
		text = "https://" + text
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		r.differ(file, key, "the address is not valid: it is not translated") // it may have a password, which is not printed
		return ""
	case u.User != nil:
		r.differ(file, key, "an address with a login ("+u.Host+") is not translated: write the login into config.json")
		return ""
	case u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.RawQuery != "" || u.Fragment != "":
		r.differ(file, key, strconv.Quote(text)+" is not the address of a registry: it is not translated")
		return ""
	}
	return strings.TrimSuffix(u.String(), "/")
}

// mirrors adds the settings of registries.yaml, or of a config.toml of containerd. If noDefault is true, the last endpoint replaces the
// registry itself. Otherwise the registry itself is tried last, with its own TLS settings.
func (r *registries) mirrors(file, key string, mirrors map[string]mirror, configs map[string]registryConfig, noDefault bool) {
	key = strings.TrimPrefix(key+".", ".")
	isMirror := map[string]bool{} // endpoints of another registry
	for _, name := range slices.Sorted(maps.Keys(mirrors)) {
		at := key + "mirrors." + name
		for _, pattern := range slices.Sorted(maps.Keys(mirrors[name].Rewrites)) {
			r.differ(file, at+".rewrite", "islet does not rewrite the names of images ("+pattern+"): pull through a mirror with the "+
				"same names")
		}
		h := r.host(file, at, name)
		if h == nil {
			continue
		}
		for _, text := range mirrors[name].Endpoints {
			address := r.parse(file, at, withScheme(text))
			if address == "" {
				continue
			}
			h.endpoints = append(h.endpoints, r.endpoint(configs, address))
			if u, err := url.Parse(address); err == nil && u.Host != name {
				isMirror[u.Host] = true
			}
		}
		n, own := len(h.endpoints)-1, r.endpoint(configs, ownAddress(name))
		if n >= 0 && (noDefault || h.endpoints[n] == own) {
			h.server, h.endpoints = h.endpoints[n], h.endpoints[:n]
		} else if name != "*" && own != (endpoint{url: own.url}) {
			h.server = own
		}
	}
	for _, name := range slices.Sorted(maps.Keys(configs)) {
		at := key + "configs." + name
		if name == "*" {
			r.differ(file, at, "write the settings for each registry: islet has none for all of them")
			continue
		}
		if c := configs[name]; c.TLS != nil && mirrors[name].Endpoints == nil {
			if h := r.host(file, at, name); h != nil {
				h.server = r.endpoint(configs, ownAddress(name))
			}
		}
		r.login(file, at, name, configs[name], isMirror[name])
	}
}

// hub is the server of the registry docker.io.
const hub = "registry-1.docker.io"

// ownAddress returns the address of a registry's own server.
func ownAddress(name string) string {
	if name == "docker.io" {
		name = hub
	}
	return withScheme(name)
}

// withScheme adds the scheme that k3s adds to an address without one: http for another port of this host than that of HTTPS.
func withScheme(address string) string {
	if strings.Contains(address, "://") {
		return address
	}
	u, err := url.Parse("//" + address)
	if err != nil || u.Port() == "" || u.Port() == "443" {
		return "https://" + address
	}
	if ip, err := netip.ParseAddr(u.Hostname()); u.Hostname() == "localhost" || err == nil && ip.IsLoopback() {
		return "http://" + address
	}
	return "https://" + address
}

// endpoint returns an endpoint with the TLS settings of its server. As for containerd and k3s, a path in an address replaces /v2.
func (r *registries) endpoint(configs map[string]registryConfig, address string) endpoint {
	e := endpoint{url: address}
	u, err := url.Parse(address)
	if err != nil {
		return e
	}
	e.overridePath = u.Path != "" && u.Path != "/v2"
	c, ok := configs[u.Host]
	if !ok && u.Host == hub {
		c, ok = configs["docker.io"]
	}
	if !ok {
		c = configs["*"]
	}
	if c.TLS != nil {
		e.ca, e.cert, e.key, e.insecure = c.TLS.CA, c.TLS.Cert, c.TLS.Key, c.TLS.Insecure
	}
	return e
}

// login adds the login of a server.
func (r *registries) login(file, key, name string, c registryConfig, isMirror bool) {
	if c.Auth == nil {
		return
	}
	auth := c.Auth.Auth
	if auth == "" && c.Auth.Username+c.Auth.Password != "" {
		auth = base64.StdEncoding.EncodeToString([]byte(c.Auth.Username + ":" + c.Auth.Password))
	}
	if c.Auth.Token != "" || c.Auth.IdentityToken != "" {
		r.differ(file, key+".auth.token", "a token is not translated: write the login into config.json")
	}
	if isMirror {
		r.differ(file, key+".auth", "islet sends a mirror the login of the registry in the image's name, so this login is used only for "+
			"images with the name "+name+"/...")
	}
	if auth == "" {
		return
	}
	if r.logins == nil {
		r.logins = map[string]string{}
	}
	r.logins[name] = auth
	if !slices.Contains(r.from, file) {
		r.from = add(r.from, file)
	}
}

// docker adds the settings of a daemon.json.
func (r *registries) docker(file string, mirrors, insecure []string) {
	for _, text := range mirrors {
		if address := r.parse(file, "registry-mirrors", text); address != "" {
			if h := r.host(file, "registry-mirrors", "docker.io"); h != nil {
				h.endpoints = append(h.endpoints, endpoint{url: address, insecure: slices.Contains(insecure, hostOf(address))})
			}
		}
	}
	for _, name := range insecure {
		if strings.Contains(name, "/") {
			r.differ(file, "insecure-registries "+name, "islet has no setting for a range of addresses: write a hosts.toml for each "+
				"registry")
			continue
		}
		if h := r.host(file, "insecure-registries "+name, name); h != nil {
			h.insecureHost(name)
		}
	}
}

// insecureHost sets a registry's own server: TLS with any certificate, then plain HTTP.
func (h *registry) insecureHost(name string) {
	h.endpoints = append(h.endpoints, endpoint{url: "https://" + name, insecure: true})
	h.server = endpoint{url: "http://" + name}
}

func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Host
}

// registryFiles reads the settings of registries of k3s and podman, and adds the translated files.
func (p *planner) registryFiles() {
	r := &p.config
	if r.k3sFile == "" {
		r.k3sFile = "/etc/rancher/k3s/registries.yaml"
	}
	p.k3sRegistries(r.k3sFile)
	for _, file := range append([]string{"/etc/containers/registries.conf"}, p.host.filesIn("etc/containers/registries.conf.d",
		".conf")...) {
		p.podmanRegistries(file)
	}
	for _, n := range r.notes {
		p.differ(n.File, n.Key, n.What)
	}
	for _, name := range slices.Sorted(maps.Keys(r.hosts)) {
		if h := r.hosts[name]; len(h.endpoints) > 0 || h.server.url != "" {
			if file := path.Join(certs, name, "hosts.toml"); p.host.exists(file) {
				p.differ(file, "", "the file exists: merge it with the translated one by hand")
			}
			p.addFile("certs.d/"+name+"/hosts.toml", h.toml(), h.from...)
		}
	}
	if len(r.logins) > 0 {
		auths := map[string]any{}
		for name, auth := range r.logins {
			auths[name] = map[string]string{"auth": auth}
		}
		if data, err := json.MarshalIndent(map[string]any{"auths": auths}, "", "  "); err == nil {
			p.addFile("config.json", string(data)+"\n", r.from...)
		}
	}
}

func (p *planner) k3sRegistries(file string) {
	text := p.host.read(file)
	if text == "" {
		return
	}
	var c struct {
		Mirrors map[string]mirror         `json:"mirrors"`
		Configs map[string]registryConfig `json:"configs"`
	}
	if err := yaml.Unmarshal([]byte(text), &c); err != nil {
		p.differ(file, "", "the file is not valid, and was not read: "+err.Error())
		return
	}
	p.config.mirrors(file, "", c.Mirrors, c.Configs, p.config.noDefault)
}

// A podmanRegistry is an element of registry in a registries.conf.
type podmanRegistry struct {
	Prefix       string           `toml:"prefix"`
	Location     string           `toml:"location"`
	Insecure     bool             `toml:"insecure"`
	Blocked      bool             `toml:"blocked"`
	ByDigestOnly bool             `toml:"mirror-by-digest-only"`
	PullFrom     string           `toml:"pull-from-mirror"`
	Mirrors      []podmanRegistry `toml:"mirror"`
}

// podmanRegistries reads a registries.conf.
func (p *planner) podmanRegistries(file string) {
	var c struct {
		Search     []string          `toml:"unqualified-search-registries"`
		Helpers    []string          `toml:"credential-helpers"`
		Aliases    map[string]string `toml:"aliases"`
		Registries []podmanRegistry  `toml:"registry"`
		Version1   map[string]any    `toml:"registries"`
	}
	if !p.decodeTOML(file, &c) {
		return
	}
	if len(c.Search) > 0 && !slices.Equal(c.Search, []string{"docker.io"}) {
		p.differ(file, "unqualified-search-registries", "islet takes a short name from Docker Hub: write full names in manifests")
	}
	if len(c.Aliases) > 0 {
		p.differ(file, "aliases", "islet has no short names ("+strconv.Itoa(len(c.Aliases))+"): write full names in manifests")
	}
	if len(c.Helpers) > 0 {
		p.differ(file, "credential-helpers", "islet runs credential provider plugins instead: see docs/registries.md")
	}
	if len(c.Version1) > 0 {
		p.differ(file, "registries", "version 1 of the file is not translated")
	}
	for i, reg := range c.Registries {
		if i >= maxKeys {
			p.differ(file, "registry", "only "+strconv.Itoa(maxKeys)+" entries are translated")
			return
		}
		p.config.podman(file, reg)
	}
}

// podman adds an element of a registries.conf.
func (r *registries) podman(file string, reg podmanRegistry) {
	name := reg.Prefix
	if name == "" {
		name = reg.Location
	}
	key := "registry " + name
	switch {
	case reg.Blocked:
		r.differ(file, key+" blocked", "islet blocks no registry")
		return
	case strings.ContainsAny(name, "/*"):
		r.differ(file, key, "islet has settings only for whole registries, not for a prefix of names: the entry is not translated")
		return
	}
	if reg.ByDigestOnly {
		r.differ(file, key+" mirror-by-digest-only", "the mirrors are used for tags too")
	}
	h := r.host(file, key, name)
	if h == nil {
		return
	}
	for _, m := range reg.Mirrors {
		if m.PullFrom != "" && m.PullFrom != "all" {
			r.differ(file, key+" pull-from-mirror", "the mirror "+m.Location+" is used for tags and digests")
		}
		r.location(file, key, h, m)
	}
	if reg.Location != "" && reg.Location != name {
		r.location(file, key, h, reg)
		if n := len(h.endpoints) - 1; n >= 0 {
			h.server, h.endpoints = h.endpoints[n], h.endpoints[:n]
		}
	} else if reg.Insecure {
		h.insecureHost(name)
	}
}

// location adds the endpoint of a location, which may have a path: the path comes before the names of images.
func (r *registries) location(file, key string, h *registry, reg podmanRegistry) {
	host, prefix, _ := strings.Cut(reg.Location, "/")
	address := r.parse(file, key, host)
	if address == "" {
		return
	}
	e := endpoint{url: address, insecure: reg.Insecure}
	if prefix != "" {
		e.url, e.overridePath = address+path.Join("/v2", prefix), true
	}
	h.endpoints = append(h.endpoints, e)
	if reg.Insecure {
		e.url, e.insecure = "http"+strings.TrimPrefix(e.url, "https"), false
		h.endpoints = append(h.endpoints, e)
	}
}
