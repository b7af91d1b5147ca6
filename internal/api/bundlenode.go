package api

// These endpoints return the facts about the node that are needed to make a bundle for it.
const (
	PathRecipient  = "/islet/v1/recipient"   // POST: a Recipient; the agent makes the node's key if there is none
	PathBundleNode = "/islet/v1/bundle/node" // GET: a bundle.Node, the description for islet bundle verify --for
)

// Recipient is the node's public key for sealed Secrets.
type Recipient struct {
	Recipient string `json:"recipient"`
}
