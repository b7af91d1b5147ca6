// Package supervisor keeps a node in a cluster of k3s after islet join: it renews the certificates that the server's supervisor has issued,
// and keeps a tunnel to each server, through which the API server reaches port 10250.
//
//	cluster.json, *.pem, *.crt --read--> renewal --/v1-k3s/*.crt--> new pair --checked, proven--> *.pem --watched--> edge/link
//	                                                                                              *.crt             port 10250
//	cluster.json, /v1-k3s/apiservers --> servers --one tunnel each--> edge/remotedialer --dialNode--> port 10250
//
// A certificate is replaced only after the API server has accepted the new one. Any other outcome keeps the old one, and the attempt is
// repeated: through an outage, and also after the certificate has expired. Files are replaced under the lock of islet join, and only in the
// directory that was in use when the attempt began. No request is sent under the lock.
//
// A tunnel needs no port that others can reach. Its server can use nothing but port 10250, which authenticates and authorizes each request
// as for any other client. The pods of the node cannot be reached through a tunnel.
package supervisor
