"""Login by single sign-on at a real Keycloak, in a real browser."""
