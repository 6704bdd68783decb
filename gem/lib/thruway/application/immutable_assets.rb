# frozen_string_literal: true

module Thruway
  # Lets clients and proxies keep assets whose names have a digest: other content has another name.
  class ImmutableAssets
    FOREVER = "public, max-age=31536000, immutable"

    # As Sprockets and Propshaft write them: `application-0a1b2c3d.js`. A date is no digest.
    DIGEST = /[-.](?!(?:19|20)\d{6}\.)[0-9a-f]{8,128}(?:\.digested)?\.[a-z0-9.]+\z/i

    def initialize(app, folder)
      @app = app
      @prefix = "#{folder.delete_suffix("/")}/"
    end

    def call(env)
      status, headers, body = @app.call(env)
      path = env["PATH_INFO"]
      if [200, 304].include?(status.to_i) && path.start_with?(@prefix) && path.match?(DIGEST)
        headers = headers.reject { |name, _| name.casecmp?("cache-control") }
        headers["cache-control"] = FOREVER
      end
      [status, headers, body]
    end
  end
end
