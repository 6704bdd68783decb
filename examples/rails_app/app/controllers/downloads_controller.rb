# frozen_string_literal: true

# A file through send_file: with SENDFILE_HEADER set, the server sends it.
class DownloadsController < ApplicationController
  def show
    send_file Rails.root.join("db/road.svg"), type: "image/svg+xml", disposition: "attachment"
  end
end
