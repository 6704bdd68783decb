# frozen_string_literal: true

module Thruway
  # Lets clients and proxies cache assets forever if their names contain a digest. Changed content
  # has another name.
  class ImmutableAssets
    FOREVER = "public, max-age=31536000, immutable"

    # A digest as Sprockets and Propshaft write it: `application-0a1b2c3d.js`. Eight digits that
    # look like a date do not count.
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
