// Draws the OpenAPI schema with Swagger UI. Changes made from the page carry the session's CSRF
// token.
const place = document.getElementById("reference");
const { "X-CSRFToken": token } = JSON.parse(document.body.getAttribute("hx-headers"));

SwaggerUIBundle({
  domNode: place,
  url: place.dataset.schema,
  deepLinking: true,
  docExpansion: "none",
  filter: true,
  validatorUrl: null,
  requestInterceptor: (request) => {
    request.headers["X-CSRFToken"] = token;
    return request;
  },
});
