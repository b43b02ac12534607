package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

// await waits until every given address answers 200 and returns the exit status: 0 when all did, 1 when the
// time ran out, 2 when it was called wrongly. With a timeout of 0 each address is asked once. It prints a line
// per address: "ok ADDRESS" once it answered, or "bad ADDRESS REASON" with the last reason at the end.
//
// It lives here because the components answer over TLS only, and this program has a TLS client anyway.
func await(args []string) int {
	flags := flag.NewFlagSet("await", flag.ContinueOnError)
	ca := flags.String("ca", "", "certificate of the authority that signed the servers' certificates")
	cert := flags.String("cert", "", "client certificate to show")
	key := flags.String("key", "", "key of the client certificate")
	timeout := flags.Duration("timeout", 0, "how long to wait; 0 asks once")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	client, err := awaitClient(*ca, *cert, *key)
	if err != nil {
		fmt.Fprintln(os.Stderr, "await:", err)
		return 2
	}
	deadline := time.Now().Add(*timeout)
	status := 0
	for _, address := range flags.Args() {
		if err := awaitOne(client, address, deadline); err != nil {
			fmt.Printf("bad %s %s\n", address, strings.ReplaceAll(err.Error(), "\n", " "))
			status = 1
			continue
		}
		fmt.Println("ok", address)
	}
	return status
}

// awaitClient makes a client that trusts only the given authority.
func awaitClient(ca, cert, key string) (*http.Client, error) {
	pem, err := os.ReadFile(ca)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate", ca)
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
		RootCAs: roots, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13,
	}}}, nil
}

// awaitOne asks until the address answers 200 or the deadline has passed, at least once. An answer may take
// 10 seconds: a component that is busy starting up is slow, not absent.
func awaitOne(client *http.Client, address string, deadline time.Time) error {
	for {
		err := ask(client, address)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func ask(client *http.Client, address string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, 4096))
	err = errors.Join(err, response.Body.Close())
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", response.Status, strings.TrimSpace(string(body)))
	}
	return err
}
